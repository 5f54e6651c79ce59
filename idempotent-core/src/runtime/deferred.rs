//! Ends of attempts that the store does not have yet.
//!
//! Until the background, or another request with the key, sends such an end to the store, it exists
//! only in this process. So this process must not run the operation again in the meantime, and must
//! bound the memory that the ends take.

mod deferrals;
mod end;
mod ledger;
mod retry;

pub(super) use self::{
    deferrals::{Deferrals, QueuedEnd, SendingEnd},
    end::DeferredEnd,
};
