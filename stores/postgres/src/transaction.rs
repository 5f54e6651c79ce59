//! Transactions that the application's writes share with a record.

mod begin;
mod claim;
mod handle;
mod marked;
mod settings;
mod token;

pub(crate) use self::{begin::begin, claim::claim, settings::CLEAN};
