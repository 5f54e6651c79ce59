//! Operations whose client, process or database server fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![allow(missing_docs, reason = "tests")]

mod clients;
mod consumers;
mod disconnects;
mod finish;
mod http2;
mod payments;
mod random_disconnects;
mod results;
mod task_locals;
mod webhooks;
