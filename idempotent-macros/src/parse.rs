//! Tokens of the attribute → [`args::Args`].

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod entry;
pub(crate) mod method;
pub(crate) mod nearest;
