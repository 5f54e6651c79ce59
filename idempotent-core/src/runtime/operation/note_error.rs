//! The errors of an operation's calls.

use crate::{error::StoreError, short_text::ShortTextError};

/// The error of a call of a [`Run`](super::Run).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// The store failed. Whether it has stored the note is unknown.
    #[error("the record of the operation could not be read or written")]
    #[non_exhaustive]
    Store {
        /// The error of the store.
        source: StoreError,
    },
    /// Another attempt has taken over the key, or the attempt has ended. Nothing was stored.
    #[error("another attempt has taken over the operation; stop the handler")]
    Fenced,
    /// The operation is not claimed yet. Nothing was stored. An integration returns it where an
    /// operation can be reached before its claim.
    #[error(
        "an operation was used in an extractor; it is claimed after all extractors, so use it in \
         the handler"
    )]
    NotClaimed,
    /// The attempt has ended: the handler has responded, or its time limit has passed. A step was
    /// not run, and nothing was stored.
    #[error(
        "an operation was used after its attempt had ended, for example in a task; wait for its \
         steps in the handler"
    )]
    Ended,
    /// A reconciliation did not find out whether the step was done. The key will be held.
    #[error("what an earlier attempt did is unknown; the key is held until it is resolved")]
    OutcomeUnknown,
    /// An earlier attempt has done steps that this handler has not asked for. A step was renamed,
    /// removed or moved while the operation was in flight. The step was not run.
    #[error(
        "the step `{step}` was not recorded, but `{recorded}` was and has not been asked for; \
         keep the names and the order of steps while operations are in flight"
    )]
    #[non_exhaustive]
    UnknownStep {
        /// The step that the handler asked for.
        step: String,
        /// The first recorded step that it has not asked for.
        recorded: String,
    },
    /// The recorded steps, or the result of one of them, cannot be read: the type of the result has
    /// changed, or a later release has written them. The step was not run.
    #[error("the recorded result of a step cannot be read")]
    #[non_exhaustive]
    Unreadable {
        /// The cause, if the result is not of the expected type.
        source: Option<serde_json::Error>,
    },
    /// The recorded steps, or the input, are sealed, and this runtime has no keyring, or one that
    /// does not open them. The step was not run.
    #[error(
        "the operation is sealed with a key that this program does not have; set the keyring that \
         sealed it with `encrypt` (`RuntimeOptions::keyring`)"
    )]
    Sealed,
    /// The result of a step, or the input, cannot be serialized as JSON, or the result could not be
    /// read again, as a `NaN`. If it is the result of a step, the step was done, and its result is
    /// not recorded.
    #[error("{what} cannot be serialized")]
    #[non_exhaustive]
    Serialize {
        /// What cannot be serialized.
        what: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// The result of a step has more than 64 KiB, the results of all steps have more than 256 KiB,
    /// or the input has more than 256 KiB. If it is the result of a step, the step was done, and
    /// its result is not recorded.
    #[error("{what} is too large: {length} bytes of at most {max}")]
    #[non_exhaustive]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The name of a step is empty, too long, or was used before in this attempt.
    #[error("the name of a step must have 1 to 255 bytes and be used once: `{step}`")]
    #[non_exhaustive]
    StepName {
        /// The name.
        step: String,
    },
    /// A step was run while another one was running. The step was not run.
    #[error("steps run one after the other; `{step}` was run during another step")]
    #[non_exhaustive]
    Concurrent {
        /// The step that was not run.
        step: String,
    },
    /// A transaction of the handler is open, so a note would be stored apart from its effects.
    #[error(
        "the handler's transaction is open; run the step in it with `run_in`, or before it begins"
    )]
    TransactionOpen,
    /// The handler has a point of no return, but the policy does not name it. Under
    /// [`OnAbandon::Hold`](crate::OnAbandon::Hold) the key is held from its claim on; under
    /// [`OnAbandon::Retry`](crate::OnAbandon::Retry) it is never held. Nothing was stored.
    #[error(
        "a handler with a point of no return needs the rule `abandoned = \"retry_then_hold\"` \
         (`OnAbandon::RetryThenHold`)"
    )]
    NoPointOfNoReturn,
    /// A reference or a progress report is empty.
    #[error("{what} must not be empty")]
    #[non_exhaustive]
    EmptyText {
        /// What is empty.
        what: &'static str,
    },
    /// A reference or a progress report is too long, or contains a control character.
    #[error("{what} cannot be stored")]
    #[non_exhaustive]
    Text {
        /// What cannot be stored.
        what: &'static str,
        /// The cause.
        source: ShortTextError,
    },
}
