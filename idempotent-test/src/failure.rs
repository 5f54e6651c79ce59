//! Why a handler is not proved to be safe.

use std::fmt;

use crate::{
    process::{Fault, Moment},
    suspension::Place,
};

/// Why a handler is not proved to be safe to retry. `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unproved(String);

/// The environment variable with the name of the only trial that is run.
pub(crate) const ONLY: &str = "IDEMPOTENT_TEST_ONLY";

impl Unproved {
    pub(crate) fn new(trial: &Trial, what: impl fmt::Display) -> Self {
        let name = trial.name();
        Self(format!("{trial}: {what}; to run only this trial, set {ONLY}={name}"))
    }

    pub(crate) fn no_trial(only: &str) -> Self {
        Self(format!("no trial is named `{only}`, as {ONLY} or `only` asks for"))
    }
}

/// One way in which the request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// Once, without a fault.
    First,
    /// Again, with the same key.
    Repeat,
    /// Again, with another body.
    OtherBody,
    /// Several times at once.
    AtOnce(usize),
    /// The client hangs up while the request waits.
    HangUp(At),
    /// The process dies while the request waits.
    Death(At),
    /// A call to the store fails.
    StoreFault { number: usize, call: &'static str, fault: Fault },
}

/// Where a request is interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// Which time the request waits there, from 0.
    pub(crate) number: usize,
    /// The place, as far as it is known.
    pub(crate) place: Place,
}

impl At {
    /// A short name, without spaces.
    fn name(&self) -> String {
        match &self.place {
            Place::Source(lines) => lines.first().cloned().unwrap_or_default(),
            Place::Store(call, moment) => {
                let when = match moment {
                    Moment::Before => "before",
                    Moment::During => "during",
                    Moment::After => "after",
                };
                format!("{when}-{}", call.as_str().replace(' ', "-"))
            }
            Place::Unknown => format!("wait-{}", self.number + 1),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (wait {})", self.place, self.number + 1)
    }
}

impl Trial {
    /// The name by which the trial can be selected.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::First => "first".into(),
            Self::Repeat => "repeat".into(),
            Self::OtherBody => "other-body".into(),
            Self::AtOnce(_) => "at-once".into(),
            Self::HangUp(at) => format!("hang-up@{}", at.name()),
            Self::Death(at) => format!("death@{}", at.name()),
            Self::StoreFault { number, fault, .. } => {
                format!("call-{number}-{}", fault.as_str().replace(' ', "-"))
            }
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("the first request"),
            Self::Repeat => f.write_str("a retry after the response"),
            Self::OtherBody => f.write_str("the same key with another body"),
            Self::AtOnce(times) => write!(f, "{times} requests with one key at once"),
            Self::HangUp(at) => write!(f, "the client disconnected at {at} and retried"),
            Self::Death(at) => write!(f, "the process died at {at} and the client retried"),
            Self::StoreFault { number, call, fault } => {
                let fault = fault.as_str();
                write!(
                    f,
                    "the store's call {number}, `{call}`, {fault}, as did those after it, and the \
                     client retried"
                )
            }
        }
    }
}
