//! The schema versions of a table, and which releases may share it.

use idempotent_core::StoreError;

/// One schema version. A released one never changes.
#[derive(Debug)]
pub struct Migration {
    /// The statements that lead to it from the version before.
    pub text: &'static str,
    /// The oldest version whose releases may go on using the table after this one.
    pub compatible_from: i64,
}

/// The last migration that was applied to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedVersion {
    /// The schema version of the table; 0 if the table does not exist.
    version: i64,
    /// The oldest version whose releases may use the table.
    compatible_from: i64,
}

impl AppliedVersion {
    /// The table does not exist.
    pub const NOTHING: Self = Self { version: 0, compatible_from: 0 };

    /// From the last row of the list, if there is one.
    pub fn last(row: Option<(i64, i64)>) -> Self {
        row.map_or(Self::NOTHING, |(version, compatible_from)| Self { version, compatible_from })
    }
}

/// The migrations of a store, in order, beginning with version 1.
#[derive(Debug)]
pub struct Migrations {
    /// The name of the store in its errors.
    pub store: &'static str,
    /// The migrations.
    pub list: &'static [Migration],
}

impl Migrations {
    /// Returns those that are still to be applied, each with its version; none where the table is
    /// newer than this release but compatible with it.
    ///
    /// # Errors
    /// Fails with a permanent error if the table is newer than this release and not compatible with
    /// it.
    pub fn pending(
        &self,
        operation: &'static str,
        applied: AppliedVersion,
    ) -> Result<impl Iterator<Item = (i64, &'static Migration)> + use<>, StoreError> {
        let latest = self.latest();
        if applied.compatible_from > latest {
            let later = SchemaTooNew { applied, latest };
            return Err(StoreError::permanent(self.store, operation, later));
        }
        Ok((1..).zip(self.list).filter(move |(version, _)| *version > applied.version))
    }

    /// Verifies that this release can use the table as it is.
    ///
    /// # Errors
    /// Fails with a permanent error if the table is older than this release needs, or newer than it
    /// can use.
    pub fn verify(
        &self,
        operation: &'static str,
        applied: AppliedVersion,
    ) -> Result<(), StoreError> {
        if self.pending(operation, applied)?.next().is_none() {
            return Ok(());
        }
        let too_old = SchemaTooOld { applied: applied.version, latest: self.latest() };
        Err(StoreError::permanent(self.store, operation, too_old))
    }

    fn latest(&self) -> i64 {
        i64::try_from(self.list.len()).unwrap_or(i64::MAX)
    }
}

/// The table is newer than this release can use.
#[derive(Debug, thiserror::Error)]
#[error(
    "the table has schema version {}, which needs a release that knows version {} or later; \
     this one knows versions up to {latest}: upgrade this instance",
    applied.version, applied.compatible_from
)]
struct SchemaTooNew {
    applied: AppliedVersion,
    latest: i64,
}

/// The table is older than this release needs, or does not exist.
#[derive(Debug, thiserror::Error)]
#[error(
    "the table has schema version {applied} (0: it does not exist), and this release needs \
     version {latest}; call `migrate()` on the store at start"
)]
struct SchemaTooOld {
    applied: i64,
    latest: i64,
}
