//! Parses the attribute's tokens into [`args::Args`].

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod entry;
pub(crate) mod key_from;
pub(crate) mod method;
pub(crate) mod nearest;
