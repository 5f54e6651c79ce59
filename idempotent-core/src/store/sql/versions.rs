//! The versions of a table, and which releases may share it.

use std::{error::Error, fmt};

/// One step of a schema's history. What was released never changes.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) text: &'static str,
    /// The oldest version whose releases may go on using the table after it.
    pub(crate) compatible_from: i64,
}

/// The last migration that was applied to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) compatible_from: i64,
}

impl Applied {
    /// There is no table.
    pub(crate) const NOTHING: Self = Self { version: 0, compatible_from: 0 };
}

impl From<(i64, i64)> for Applied {
    /// From the columns `version` and `compatible_from`.
    fn from((version, compatible_from): (i64, i64)) -> Self {
        Self { version, compatible_from }
    }
}

/// The migrations that are still to be applied, each with its version. None where the table is
/// newer and this release may use it.
///
/// # Errors
/// When the table is newer and this release may not use it.
pub(crate) fn missing(
    migrations: &'static [Migration],
    applied: Applied,
) -> Result<impl Iterator<Item = (i64, &'static Migration)>, LaterVersion> {
    let latest = latest(migrations);
    if applied.compatible_from > latest {
        return Err(LaterVersion { applied, latest });
    }
    Ok((1..).zip(migrations).filter(move |(version, _)| *version > applied.version))
}

fn latest(migrations: &[Migration]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// The table is newer than this release can use.
#[derive(Debug)]
pub(crate) struct LaterVersion {
    applied: Applied,
    latest: i64,
}

impl fmt::Display for LaterVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied: Applied { version, compatible_from }, latest } = self;
        write!(
            f,
            "the table has schema version {version}, which needs a release that knows version {compatible_from} or later; this \
             one knows versions up to {latest}: upgrade this instance"
        )
    }
}

impl Error for LaterVersion {}

/// The table is older than this release needs, or is not there.
#[derive(Debug)]
pub(crate) struct NotMigrated {
    applied: i64,
    latest: i64,
}

impl NotMigrated {
    pub(crate) fn new(migrations: &[Migration], applied: Applied) -> Self {
        Self { applied: applied.version, latest: latest(migrations) }
    }
}

impl fmt::Display for NotMigrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied, latest } = self;
        write!(
            f,
            "the table has schema version {applied} (0: there is none), and this release needs version {latest}; call \
             `migrate()` on the store at start"
        )
    }
}

impl Error for NotMigrated {}
