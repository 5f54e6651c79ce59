//! Why a command has failed, and the exit codes.

use std::error::Error;

use idempotent_core::{StoreError, report::RecordView};
use serde_json::{Value, json};

use crate::text::{DIM, ERROR, records_table};

/// Why a command has failed. None of its texts contains a URL or a response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store failed, or something else did.
    Error(String),
    /// The command line asks for something that cannot be.
    Usage(String),
    /// There is no such record.
    NotFound(String),
    /// The record is not in the state, or not the attempt, that the command is about.
    Conflict(String),
    /// Several records are meant.
    Ambiguous(String, Vec<RecordView>),
}

impl Failure {
    /// A failure with its cause.
    pub(crate) fn error(what: &str, cause: &dyn Error) -> Self {
        Self::Error(with_causes(what, cause))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Error(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Conflict(_) => 4,
            Self::Ambiguous(..) => 5,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Error(message)
            | Self::Usage(message)
            | Self::NotFound(message)
            | Self::Conflict(message)
            | Self::Ambiguous(message, _) => message,
        }
    }

    fn candidates(&self) -> &[RecordView] {
        match self {
            Self::Ambiguous(_, candidates) => candidates,
            Self::Error(_) | Self::Usage(_) | Self::NotFound(_) | Self::Conflict(_) => &[],
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "error": self.message(),
            "exit_code": self.exit_code(),
            "candidates": self.candidates(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{ERROR}error{ERROR:#}: {}\n", self.message());
        let candidates = self.candidates();
        if !candidates.is_empty() {
            text += &records_table(candidates);
            text += &format!("{DIM}Name one of them by its id.{DIM:#}\n");
        }
        text
    }
}

/// A text with the messages of an error and its causes.
fn with_causes(what: &str, cause: &dyn Error) -> String {
    let (mut text, mut cause) = (what.to_owned(), Some(cause));
    while let Some(error) = cause {
        let message = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let hint = if error.is_transient() { " (it may work when it is tried again)" } else { "" };
        Self::Error(with_causes(&error.to_string(), &error) + hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        let text = String::new;
        let failures = [
            Failure::Error(text()),
            Failure::Usage(text()),
            Failure::NotFound(text()),
            Failure::Conflict(text()),
            Failure::Ambiguous(text(), Vec::new()),
        ];
        assert_eq!(failures.map(|failure| failure.exit_code()), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = StoreError::transient("sqlite", "list", "the disk is full");
        let text = Failure::from(error).text();
        assert_eq!(text.matches("failed to list").count(), 1, "{text}");
        assert!(text.contains("list: the disk is full (it may work"), "{text}");
    }
}
