//! A table with the records of all cases, on which a statement is tried.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use crate::{
    fixtures::{File, unique},
    mutants::{
        Variant,
        backends::{Backend, postgres, sqlite},
    },
};
use idempotent_core::{Abandoned::Hold, Record, RecordState, clock::Timestamp, store::Store};

/// The columns of a record, as [`Database::touched`] returns them.
pub(super) fn values(record: &Record) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
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
pub(super) enum Database {
    Sqlite { pool: SqlitePool, _file: File },
    Postgres { pool: PgPool, table: String },
}

impl Database {
    pub(super) async fn new(backend: &Backend) -> Self {
        let database = match backend {
            Backend::Sqlite => {
                let file = File::new();
                sqlite(&file, Variant::Shipped).await.migrate().await.unwrap();
                let pool = SqlitePool::connect(&file.url()).await.unwrap();
                Self::Sqlite { pool, _file: file }
            }
            Backend::Postgres { url, pool } => {
                let table = unique();
                Store::migrate(&postgres(url, &table, Variant::Shipped).await).await.unwrap();
                Self::Postgres { pool: pool.clone(), table }
            }
            Backend::Redis(_) => unreachable!("a script reads and writes in one step"),
        };
        let table = database.table();
        let column = format!("ALTER TABLE {table} ADD COLUMN touched INTEGER NOT NULL DEFAULT 0");
        database.execute(column).await;
        database
    }

    pub(super) fn table(&self) -> &str {
        match self {
            Self::Sqlite { .. } => "idempotency_records",
            Self::Postgres { table, .. } => table,
        }
    }

    pub(super) fn blob(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Sqlite { .. } => format!("x'{hex}'"),
            Self::Postgres { .. } => format!("'\\x{hex}'::bytea"),
        }
    }

    async fn execute(&self, statements: String) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements));
        match self {
            Self::Sqlite { pool, .. } => drop(statements.execute(pool).await.unwrap()),
            Self::Postgres { pool, .. } => drop(statements.execute(pool).await.unwrap()),
        }
    }

    /// Stores these records instead of all others. Their ids are their positions.
    pub(super) async fn fill(&self, records: &[Record]) {
        let mut statement = format!(
            "DELETE FROM {table}; INSERT INTO {table} (id, state, attempt, abandoned, lease, \
             lease_until, first_seen, expires_at, fingerprint, owner, recording) VALUES",
            table = self.table()
        );
        for (at, record) in records.iter().enumerate() {
            let mut id = [0; 32];
            id[24..].copy_from_slice(&at.to_be_bytes());
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
                self.blob(&id),
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
        let hex = |column| match self {
            Self::Sqlite { .. } => format!("lower(hex({column}))"),
            Self::Postgres { .. } => format!("encode({column}, 'hex')"),
        };
        let columns = format!(
            "{} || ' ' || state || ' ' || attempt || ' ' || abandoned || ' ' || lease || ' ' || \
             lease_until || ' ' || first_seen || ' ' || expires_at || ' ' || {} || ' ' || {} || \
             ' ' || coalesce({}, '')",
            hex("id"),
            hex("fingerprint"),
            hex("owner"),
            hex("recording"),
        );
        let select =
            AssertSqlSafe(format!("SELECT {columns} FROM {} WHERE touched = 1", self.table()));
        let update = sqlx::raw_sql(AssertSqlSafe(statement));
        let rows: Vec<String> = match self {
            Self::Sqlite { pool, .. } => {
                let mut transaction = pool.begin().await.unwrap();
                update.execute(&mut *transaction).await?;
                let rows = sqlx::query_scalar(select).fetch_all(&mut *transaction).await.unwrap();
                transaction.rollback().await.unwrap();
                rows
            }
            Self::Postgres { pool, .. } => {
                let mut transaction = pool.begin().await.unwrap();
                update.execute(&mut *transaction).await?;
                let rows = sqlx::query_scalar(select).fetch_all(&mut *transaction).await.unwrap();
                transaction.rollback().await.unwrap();
                rows
            }
        };
        let row = |row: &String| {
            let (id, values) = row.split_once(' ').unwrap();
            (usize::from_str_radix(&id[48..], 16).unwrap(), values.to_owned())
        };
        Ok(rows.iter().map(row).collect())
    }
}
