//! Claims.

pub(crate) mod batches;
