//! Transactions that the application's writes share with a record.

mod begin;
mod claim;
mod guarded;
mod handle;
mod xid;

pub(crate) use self::{
    begin::begin,
    claim::claim,
    xid::{REFUSED, Xid},
};
