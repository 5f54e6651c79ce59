//! The runtime on a memory store with a manual clock, whose calls fail or hang on request.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod administering;
mod background;
mod cancellation;
mod claims;
mod corpora;
mod debug_output;
mod deferral;
mod deferred_memory;
mod deferred_outcomes;
mod disturbed_completions;
mod ending_leases;
mod ends;
mod fencing;
mod hanging;
mod isolated_renewals;
mod observing;
mod renewal;
mod resuming;
mod rotation;
mod runs;
mod sealing;
mod steps;
mod support;
mod verdicts;
mod waiting;
