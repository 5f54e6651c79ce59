//! Where a future waits: it is polled by a waker that keeps the stack of whoever stores it.

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::future::LocalBoxFuture;

use self::stack::Stack;
use crate::process::{Call, Moment, ProcessStore};

mod stack;
mod waker;

/// The path of this file, as the compiler was given it.
const FILE: &str = file!();

/// Where a request waits, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At an `await` of the application: its file and line, such as `src/refund.rs:20`, and those
    /// of the functions that wait for it, the innermost first.
    Source(Vec<String>),
    /// At this call of the guard to its store.
    Store(Call, Moment),
    /// At an `await` that could not be found.
    Unknown,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(lines) => write!(f, "the await at {}", lines.join(", called at ")),
            Self::Store(call, Moment::Before | Moment::During) => {
                write!(f, "the store's call `{}`", call.as_str())
            }
            Self::Store(call, Moment::After) => {
                write!(f, "the acknowledgment of the store's call `{}`", call.as_str())
            }
            Self::Unknown => f.write_str("an await whose place is not known"),
        }
    }
}

/// The stacks of those who have stored a waker.
#[derive(Clone, Debug, Default)]
struct Stacks(Arc<Mutex<Vec<Stack>>>);

impl Stacks {
    fn push(&self, stack: Stack) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stack);
    }

    /// The place of the latest stack that contains code of the application.
    fn place(&self) -> Place {
        let stacks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut sources = stacks.iter().rev().map(Stack::source);
        sources.find(|source| !source.is_empty()).map_or(Place::Unknown, Place::Source)
    }
}

/// A future that is polled to its end, or to one of the points at which it waits.
pub(crate) struct Polled<T> {
    /// What it has returned. If it was interrupted, the future: it is not dropped yet.
    pub(crate) end: Result<T, LocalBoxFuture<'static, T>>,
    /// The places at which it has waited.
    pub(crate) places: Vec<Place>,
}

/// Where a future is to be interrupted.
#[derive(Clone, Copy)]
pub(crate) enum Until<'a> {
    /// Nowhere.
    End,
    /// When it waits for this time, from 0.
    Wait(usize),
    /// When it waits for the last of these times at the same place.
    Places(&'a [Place]),
}

impl Until<'_> {
    /// Whether a future is to be interrupted that has waited at these places.
    fn is_reached(self, places: &[Place]) -> bool {
        match self {
            Self::End => false,
            Self::Wait(number) => number + 1 == places.len(),
            Self::Places(of_another) => {
                let last = of_another.last();
                let times =
                    |places: &[Place]| places.iter().filter(|place| Some(*place) == last).count();
                places.last() == last && times(places) == times(of_another)
            }
        }
    }
}

/// Polls a future to its end, or until it is to be interrupted.
pub(crate) async fn poll_until<T>(
    mut future: LocalBoxFuture<'static, T>,
    until: Until<'_>,
    store: &ProcessStore,
) -> Polled<T> {
    let mut places = Vec::new();
    let polled = poll_fn(|cx| {
        let stacks = Stacks::default();
        let waker = waker::tracing(cx.waker().clone(), stacks.clone());
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                let at_store = store.waiting().map(|(call, moment)| Place::Store(call, moment));
                places.push(at_store.unwrap_or_else(|| stacks.place()));
                if until.is_reached(&places) { Poll::Ready(None) } else { Poll::Pending }
            }
        }
    })
    .await;
    Polled { end: polled.ok_or(future), places }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_time_at_the_same_place_is_reached() {
        let (a, b) = (Place::Store(Call::Claim, Moment::After), Place::Unknown);
        let until = [a.clone(), b.clone(), a.clone()];
        for (places, expected) in [
            (vec![a.clone()], false),
            (vec![b.clone(), b.clone(), a.clone()], false),
            (vec![a.clone(), a.clone()], true),
            (vec![a.clone(), a.clone(), b.clone()], false),
        ] {
            assert_eq!(Until::Places(&until).is_reached(&places), expected, "{places:?}");
        }
        assert!(Until::Wait(0).is_reached(std::slice::from_ref(&a)));
        assert!(!Until::Wait(0).is_reached(&[a.clone(), b]) && !Until::End.is_reached(&[a]));
    }
}
