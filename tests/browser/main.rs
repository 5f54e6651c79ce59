//! The page of the payments example in a real browser: Chromium, driven by fantoccini through
//! chromedriver.
//!
//! `tests/run browser` installs what is missing and runs these tests; `tests/run pictures` writes
//! the pictures in `docs/page`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]
#![allow(missing_docs, reason = "tests")]

mod accessibility;
mod browser;
mod by_hand;
mod console;
mod front;
mod interrupted;
mod keyboard;
mod page;
mod pictures;
mod stories;
mod webdriver;
mod without_script;

use std::time::{Duration, Instant};

/// How long anything may take before a test fails. A browser starts slowly on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// Waits until a condition holds.
async fn await_that(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds().await {
        assert!(Instant::now() < until, "timed out while waiting: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
