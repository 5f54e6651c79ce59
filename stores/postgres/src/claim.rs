//! Claims that are committed by themselves.

pub(crate) mod alone;
pub(crate) mod batches;
