//! What goes wrong in each of the SQL stores.

use std::{error::Error, fmt};

use super::TableName;

/// The table is not there.
#[derive(Debug)]
pub(crate) struct MissingTable {
    pub(crate) table: TableName,
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for MissingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no table `{}`; call `migrate()` on the store at start", self.table.as_str())
    }
}

impl Error for MissingTable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// Other claims were faster each time.
#[derive(Debug)]
pub(crate) struct Contended;

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("other claims for the same key came between, each time")
    }
}

impl Error for Contended {}

/// A setting under which records could be lost.
#[derive(Debug)]
pub(crate) struct UnsafeSetting {
    pub(crate) database: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) is: String,
    pub(crate) must: &'static str,
}

impl fmt::Display for UnsafeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, setting, is, must } = self;
        write!(f, "{database}'s `{setting}` is `{is}`; it must be {must}")
    }
}

impl Error for UnsafeSetting {}
