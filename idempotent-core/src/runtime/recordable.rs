//! The values that can be recorded.

use serde::{Serialize, de::DeserializeOwned};

/// A value that a record can contain as JSON, and that a later attempt reads: the result of a
/// [step](super::Step), or the result or the failure of a [run](super::Runtime::run).
///
/// Every type is one that implements [`Serialize`] and `Deserialize` and borrows nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    label = "a later attempt could not read this value",
    note = "what a step or a run returns is recorded as JSON: derive `serde::Serialize` and \
            `serde::Deserialize` for `{Self}`, or return the part of it that is needed, such as an \
            id"
)]
pub trait Recordable: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Recordable for T {}
