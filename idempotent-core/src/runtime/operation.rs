//! The operation of an attempt, for its handler.

mod note_error;
mod recorded_steps;
mod run;
mod single_writer;
mod step;

pub use self::{
    note_error::NoteError,
    recorded_steps::{decode_input, is_input_of},
    run::Run,
    step::{HandlerTransaction, ReconciledStep, Reconciliation, Step},
};
