//! The items: records, parts that are too large for them, and the log of operators' decisions.

pub(crate) use self::{
    contents::{BlobRef, Content, Contents},
    decode::{decode, decode_listed},
    encode::{encode, entry, gone},
    keys::Keys,
    log::{log_entry, read_log_entry},
    stored::{Stored, Tag},
    values::{Item, blob, bytes, number, text},
};

mod contents;
mod decode;
mod encode;
mod keys;
mod log;
pub(crate) mod names;
mod stored;
mod values;
