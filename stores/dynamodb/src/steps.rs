//! The steps of the state machine. Each is one conditional write, whose refusal returns the record:
//! a step whose outcome the condition does not tell is decided by
//! [`transition`](idempotent_core::transition), and written on the condition that the record is
//! still the one for which it was decided.

#[cfg(feature = "internals")]
pub(crate) use self::expire::expire;
pub(crate) use self::{
    claim::claim,
    ends::{abandon, complete, release},
    history::append_history,
    lookup::look_up,
    note::note,
    operators::{remove, replace, resolve},
    renewal::renew,
    resumable::resumable,
};

mod blobs;
mod claim;
mod decided;
mod ends;
#[cfg(feature = "internals")]
mod expire;
mod history;
mod lookup;
mod note;
mod operators;
mod renewal;
mod resumable;
