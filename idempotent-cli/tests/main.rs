//! The program `idempotency`, started as an operator starts it, on every store.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests are tests"
)]

mod backend;
mod each_store;
mod limits;
mod output;
mod program;
mod readme;
mod sealing;
mod secrets;
mod selecting;
mod usage;
