//! A table with the records of all cases, on which a statement is tried.

use std::{collections::BTreeMap, fmt::Write as _};

use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use crate::{
    effects::hex,
    fixtures::unique,
    mutants::{
        Variant,
        backends::{Backend, postgres, sqlite},
    },
};
use idempotent_core::{Abandoned::Hold, Record, RecordState, clock::Timestamp, store::Store};
use test_support::subjects::sqlite::File;

/// The columns of a record, as [`Database::touched`] returns them.
pub(in crate::mutants) fn values(record: &Record) -> String {
    let (state, recording) = match &record.state {
        RecordState::InFlight => (1, None),
        RecordState::Completed(recording) => (2, Some(recording)),
        RecordState::Held => (3, None),
    };
    let times =
        [record.lease_until, record.first_seen, record.expires_at].map(Timestamp::as_millis);
    format!(
        "{state} {} {} {} {} {} {} {} {} {}",
        record.attempt,
        u8::from(record.abandoned == Hold),
        record.lease.as_millis(),
        times[0],
        times[1],
        times[2],
        hex(&record.fingerprint.to_bytes()),
        hex(record.owner.as_bytes()),
        recording.map_or_else(String::new, |recording| hex(recording)),
    )
}

/// A table with an additional column that marks the updated records.
pub(in crate::mutants) enum Database {
    Sqlite {
        pool: SqlitePool,
        _file: File,
    },
    Postgres {
        pool: PgPool,
        table: String,
    },
    #[cfg(feature = "mysql")]
    MySql {
        pool: sqlx::MySqlPool,
        table: String,
    },
}

impl Database {
    pub(in crate::mutants) async fn new(backend: &Backend) -> Self {
        let database = match backend {
            Backend::Sqlite => {
                let file = File::new();
                sqlite(&file, Variant::Shipped).await.migrate().await.unwrap();
                let pool = SqlitePool::connect(&file.url()).await.unwrap();
                Self::Sqlite { pool, _file: file }
            }
            Backend::Postgres { url, pool, .. } => {
                let table = unique();
                let store = postgres(url, &table, Variant::Shipped, false).await;
                Store::migrate(&store).await.unwrap();
                Self::Postgres { pool: pool.clone(), table }
            }
            #[cfg(feature = "mysql")]
            Backend::MySql { url, pool, .. } => {
                let table = unique();
                let store = crate::mutants::backends::mysql(url, &table, Variant::Shipped, false);
                Store::migrate(&store.await).await.unwrap();
                Self::MySql { pool: pool.clone(), table }
            }
            Backend::Redis(_) => unreachable!("a script reads and writes in one step"),
        };
        let table = database.table();
        let column = format!("ALTER TABLE {table} ADD COLUMN touched INTEGER NOT NULL DEFAULT 0");
        database.execute(column).await;
        database
    }

    pub(in crate::mutants) fn table(&self) -> &str {
        match self {
            Self::Sqlite { .. } => "idempotency_records",
            Self::Postgres { table, .. } => table,
            #[cfg(feature = "mysql")]
            Self::MySql { table, .. } => table,
        }
    }

    pub(super) fn blob(&self, bytes: &[u8]) -> String {
        let hex = hex(bytes);
        match self {
            Self::Sqlite { .. } => format!("x'{hex}'"),
            Self::Postgres { .. } => format!("'\\x{hex}'::bytea"),
            #[cfg(feature = "mysql")]
            Self::MySql { .. } => format!("x'{hex}'"),
        }
    }

    pub(in crate::mutants) async fn execute(&self, statements: String) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        match self {
            Self::Sqlite { pool, .. } => drop(statements.execute(pool).await.unwrap()),
            Self::Postgres { pool, .. } => drop(statements.execute(pool).await.unwrap()),
            #[cfg(feature = "mysql")]
            Self::MySql { pool, .. } => drop(statements.execute(pool).await.unwrap()),
        }
    }

    /// Stores these records instead of all others. Their ids are their positions.
    pub(in crate::mutants) async fn fill(&self, records: &[Record]) {
        let mut statement = format!(
            "DELETE FROM {table}; INSERT INTO {table} (id, state, attempt, abandoned, lease, \
             lease_until, first_seen, expires_at, fingerprint, owner, recording) VALUES",
            table = self.table()
        );
        for (at, record) in records.iter().enumerate() {
            let values = values(record);
            let mut values = values.split(' ');
            let numbers: Vec<_> = values.by_ref().take(7).collect();
            let recording = match &record.state {
                RecordState::Completed(recording) => self.blob(recording),
                RecordState::InFlight | RecordState::Held => "NULL".to_owned(),
            };
            write!(
                statement,
                "{} ({}, {}, {}, {}, {recording})",
                if at == 0 { "" } else { "," },
                self.blob(&id_at(at)),
                numbers.join(", "),
                self.blob(&record.fingerprint.to_bytes()),
                self.blob(record.owner.as_bytes()),
            )
            .unwrap();
        }
        self.execute(statement).await;
    }

    /// The positions and the columns of the records that a statement updates. The update is undone.
    /// Fails if the table refuses the update.
    pub(super) async fn touched(
        &self,
        statement: String,
    ) -> Result<Vec<(usize, String)>, sqlx::Error> {
        let rows = self.rows_after(&Change::of_all(statement)).await?.into_iter();
        Ok(rows.filter(|(_, row)| row.touched).map(|(at, row)| (at, row.values)).collect())
    }

    /// All rows after a change, by their positions. The change is undone. Fails if the table
    /// refuses it.
    pub(in crate::mutants) async fn rows_after(
        &self,
        change: &Change,
    ) -> Result<BTreeMap<usize, Row>, sqlx::Error> {
        let as_hex = |column| match self {
            Self::Sqlite { .. } => format!("lower(hex({column}))"),
            #[cfg(feature = "mysql")]
            Self::MySql { .. } => format!("lower(hex({column}))"),
            Self::Postgres { .. } => format!("encode({column}, 'hex')"),
        };
        let columns = format!(
            "{} || ' ' || touched || ' ' || kept || ' ' || state || ' ' || attempt || ' ' || \
             abandoned || ' ' || lease || ' ' || lease_until || ' ' || first_seen || ' ' || \
             expires_at || ' ' || {} || ' ' || {} || ' ' || coalesce({}, '')",
            as_hex("id"),
            as_hex("fingerprint"),
            as_hex("owner"),
            as_hex("recording"),
        );
        let select = AssertSqlSafe(format!("SELECT {columns} FROM {}", self.table()));
        let rows: Vec<String> = match self {
            Self::Sqlite { pool, .. } => {
                let mut transaction = pool.begin().await.unwrap();
                change.all().execute(&mut *transaction).await?;
                let rows = sqlx::query_scalar(select).fetch_all(&mut *transaction).await.unwrap();
                transaction.rollback().await.unwrap();
                rows
            }
            Self::Postgres { pool, .. } => {
                let mut transaction = pool.begin().await.unwrap();
                change.all().execute(&mut *transaction).await?;
                let rows = sqlx::query_scalar(select).fetch_all(&mut *transaction).await.unwrap();
                transaction.rollback().await.unwrap();
                rows
            }
            #[cfg(feature = "mysql")]
            Self::MySql { pool, .. } => {
                let mut transaction = pool.begin().await.unwrap();
                if let Some(change) = change.of_found(&mut transaction).await? {
                    change.execute(&mut *transaction).await?;
                }
                let rows = sqlx::query_scalar(select).fetch_all(&mut *transaction).await.unwrap();
                transaction.rollback().await.unwrap();
                rows
            }
        };
        Ok(rows.iter().map(|row| Row::parse(row)).collect())
    }
}

/// A change of records.
pub(in crate::mutants) struct Change {
    /// The statement that finds the records, if another one than `change` does. Its parameter
    /// `{each,:?1}` are then their ids.
    find: Option<String>,
    change: String,
}

impl Change {
    /// A statement that finds what it changes.
    pub(in crate::mutants) fn of_all(change: String) -> Self {
        Self { find: None, change }
    }

    /// A statement for records that another one finds.
    #[cfg(feature = "mysql")]
    pub(in crate::mutants) fn of_those(find: String, change: String) -> Self {
        Self { find: Some(find), change }
    }

    fn all(&self) -> sqlx::RawSql {
        debug_assert!(self.find.is_none());
        sqlx::raw_sql(AssertSqlSafe(self.change.clone()))
    }

    /// The statement for the records that were found; `None` if there are none.
    #[cfg(feature = "mysql")]
    async fn of_found(
        &self,
        connection: &mut sqlx::MySqlConnection,
    ) -> Result<Option<sqlx::RawSql>, sqlx::Error> {
        let Some(find) = &self.find else { return Ok(Some(self.all())) };
        let find = sqlx::query_scalar(AssertSqlSafe(find.clone()));
        let found: Vec<Vec<u8>> = find.fetch_all(connection).await?;
        let ids: Vec<_> = found.iter().map(|id| format!("x'{}'", hex(id))).collect();
        let change = self.change.replace("{each,:?1}", &ids.join(", "));
        Ok((!ids.is_empty()).then(|| sqlx::raw_sql(AssertSqlSafe(change))))
    }
}

/// The id of the record at a position.
pub(in crate::mutants) fn id_at(position: usize) -> [u8; 32] {
    let mut id = [0; 32];
    id[24..].copy_from_slice(&position.to_be_bytes());
    id
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::mutants) struct Row {
    /// Whether a statement has updated it.
    pub(in crate::mutants) touched: bool,
    pub(in crate::mutants) kept: bool,
    pub(in crate::mutants) values: String,
}

impl Row {
    /// The position and the row.
    fn parse(text: &str) -> (usize, Self) {
        let mut words = text.splitn(4, ' ');
        let mut next = || words.next().unwrap();
        let at = usize::from_str_radix(&next()[48..], 16).unwrap();
        (at, Self { touched: next() == "1", kept: next() == "1", values: next().to_owned() })
    }
}
