//! The SQL of the store: the texts of its statements, their names and their parameters.

pub(crate) mod in_transaction;
pub(crate) mod logged;
pub(crate) mod mark;
pub(crate) mod names;
pub(crate) mod statement;
pub(crate) mod statements;
pub(crate) mod table;
