//! All stores under stress: owners die or return late while others use the same keys.
//!
//! The servers are private, unless `DATABASE_URL` and `REDIS_URL` name others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod check_then_act;
mod claims_in_transactions;
mod effects;
mod fixtures;
mod guards;
mod hammer;
mod linearizable;
mod model;
mod mutants;
