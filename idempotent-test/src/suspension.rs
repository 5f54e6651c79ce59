//! Where a future waits: it is polled by a waker that keeps the stack of whoever stores it.

use std::{
    backtrace::Backtrace,
    fmt,
    future::poll_fn,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::future::LocalBoxFuture;

use crate::process::{Call, ProcessStore};

mod waker;

/// Where a request waits, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At an `await` of the application: its file and line, such as `src/refund.rs:20`, and those of
    /// the functions that wait for it, the innermost first.
    Source(Vec<String>),
    /// At this call of the guard to its store, before or after it took effect.
    Store(Call, bool),
    /// At an `await` that could not be found.
    Unknown,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(lines) => write!(f, "the await at {}", lines.join(", called at ")),
            Self::Store(call, false) => write!(f, "the store's call `{}`", call.as_str()),
            Self::Store(call, true) => {
                write!(f, "the acknowledgment of the store's call `{}`", call.as_str())
            }
            Self::Unknown => f.write_str("an await whose place is not known"),
        }
    }
}

/// The stacks of those who have stored a waker.
#[derive(Clone, Debug, Default)]
struct Stacks(Arc<Mutex<Vec<Backtrace>>>);

impl Stacks {
    fn push(&self, stack: Backtrace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stack);
    }

    /// The place of the latest stack that contains code of the application.
    fn place(&self) -> Place {
        let stacks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut sources = stacks.iter().rev().map(|stack| source(&stack.to_string()));
        sources.find(|source| !source.is_empty()).map_or(Place::Unknown, Place::Source)
    }
}

/// A future that is polled to its end, or to one of the points at which it waits.
pub(crate) struct Polled<T> {
    /// What it has returned. If it was interrupted, the future: it is not dropped yet.
    pub(crate) end: Result<T, LocalBoxFuture<'static, T>>,
    /// Where it has waited: each place, or only the last one if it was to be interrupted.
    pub(crate) places: Vec<Place>,
}

/// Polls a future to its end, or to the wait with this number, from 0.
pub(crate) async fn poll_to<T>(
    mut future: LocalBoxFuture<'static, T>,
    wait: Option<usize>,
    store: &ProcessStore,
) -> Polled<T> {
    let (mut waits, mut places) = (0, Vec::new());
    let polled = poll_fn(|cx| {
        let is_last = wait == Some(waits);
        waits += 1;
        if wait.is_some() && !is_last {
            return future.as_mut().poll(cx).map(Some);
        }
        let stacks = Stacks::default();
        let waker = waker::tracing(cx.waker().clone(), stacks.clone());
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            let at_store = store.waiting().map(|(call, taken)| Place::Store(call, taken));
            places.push(at_store.unwrap_or_else(|| stacks.place()));
        }
        if is_last && polled.is_pending() {
            return Poll::Ready(None);
        }
        polled.map(Some)
    })
    .await;
    Polled { end: polled.ok_or(future), places }
}

/// The lines of the application in a stack, the innermost first. [`Backtrace`] writes a line with
/// a number and a function, and one with its place.
fn source(stack: &str) -> Vec<String> {
    let places = stack.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    // What has called the poll is not of the future.
    let places = places.take_while(|place| !place.contains("src/suspension.rs:"));
    let places = places.filter(|place| is_of_application(place));
    let places = places.filter_map(|place| place.rsplit_once(':'));
    let mut places: Vec<_> =
        places.map(|(place, _column)| place.trim_start_matches("./").to_owned()).collect();
    places.dedup();
    places
}

fn is_of_application(place: &str) -> bool {
    const DEPENDENCIES: [&str; 4] = ["/registry/src/", "/rustc/", "/library/", "/git/checkouts/"];
    // The crates beside this one, if it is not itself a dependency.
    const SIBLINGS: [&str; 5] =
        ["idempotent-actix", "idempotent-core", "idempotent-http", "idempotent-test/src", "stores"];
    let directory = std::env::current_dir().unwrap_or_default();
    let place_in_full = directory.join(place.trim_start_matches("./"));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let inside = workspace.and_then(|workspace| place_in_full.strip_prefix(workspace).ok());
    !DEPENDENCIES.iter().any(|part| place.contains(part))
        && !inside.is_some_and(|inside| SIBLINGS.iter().any(|each| inside.starts_with(each)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_application_are_the_source() {
        let stack = "\
   0: idempotent_test::suspension::waker::clone
             at /registry/src/index/idempotent-test-0.1.0/src/suspension/waker.rs:20:9
   1: <tokio::time::Sleep as core::future::Future>::poll
             at /root/.cargo/registry/src/index/tokio-1.54.1/src/time/sleep.rs:3:4
   2: refunds::mail::{{closure}}
             at ./tests/mail.rs:20:18
   3: refunds::refund::{{closure}}
             at ./tests/refund.rs:40:18
   4: idempotent_test::suspension::poll_to
             at /registry/src/index/idempotent-test-0.1.0/src/suspension.rs:20:9
   5: refunds::main
             at ./tests/main.rs:1:1
";
        assert_eq!(source(stack), ["tests/mail.rs:20", "tests/refund.rs:40"]);
        assert!(source(&stack.replace("./tests/", "/registry/src/mail-1/src/")).is_empty());
        assert!(source("   0: one\n   1: two\n").is_empty());
    }
}
