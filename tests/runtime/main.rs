//! The runtime over a store in memory whose clock stands still, and whose calls fail or hang on
//! request.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod background;
mod cancellation;
mod claims;
mod crowded;
mod deferral;
mod deferred_memory;
mod ends;
mod fencing;
mod hanging;
mod overtaken;
mod remembered;
mod renewal;
mod rotation;
mod support;
mod verdicts;
mod waiting;
