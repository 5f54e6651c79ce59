//! Calls to one table, each of which is sent again for a bounded time.

pub(crate) use self::{
    calls::Table,
    expression::{Expression, Value},
    reads::{Queried, done},
    transaction::Change,
    writes::Former,
};

mod calls;
mod expression;
mod probe;
mod reads;
mod refusal;
mod transaction;
mod writes;
