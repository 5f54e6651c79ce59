//! Parses the attribute's tokens into [`keys::Args`].

pub(crate) mod args;
pub(crate) mod duration;
pub(crate) mod entry;
pub(crate) mod key_from;
pub(crate) mod keys;
pub(crate) mod literal;
pub(crate) mod method;
pub(crate) mod nearest;
pub(crate) mod pointers;
pub(crate) mod values;
