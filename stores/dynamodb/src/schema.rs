//! The table: its creation, and what is verified of it.

pub(crate) use self::{
    check::check,
    describe::{facts, item_count},
    migrate::migrate,
};

mod check;
mod describe;
mod migrate;
