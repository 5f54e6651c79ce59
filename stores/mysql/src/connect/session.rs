//! What the store knows of the session of a connection.

use sqlx::{MySqlConnection, Row as _};

use crate::sql::positional::message;

/// Identifies the session to the server.
const ID: &str = "SELECT CAST(CONNECTION_ID() AS SIGNED) AS id";
/// Counts the statements of a session that leave something in it: settings and variables, temporary
/// tables, prepared statements, another database. The server also counts those in procedures.
const CHANGES: &str = "SHOW SESSION STATUS WHERE Variable_name IN ('Com_set_option', \
     'Com_create_temporary_table', 'Com_prepare_sql', 'Com_change_db', 'Com_ha_open')";

/// The session of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// Its number on the server.
    pub(crate) id: i64,
    /// How many statements had changed it when it was opened.
    changes: u64,
}

impl Session {
    /// Prepares the session that only the store uses.
    pub(crate) async fn own(
        connection: &mut MySqlConnection,
        settings: &str,
    ) -> Result<Self, sqlx::Error> {
        let row = message(format!("{settings}{ID}")).fetch_one(connection).await?;
        Ok(Self { id: row.try_get("id")?, changes: 0 })
    }

    /// Reads what is known of a session that handlers use.
    pub(crate) async fn of_handlers(connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let row = message(ID).fetch_one(&mut *connection).await?;
        Ok(Self { id: row.try_get("id")?, changes: changes(connection).await? })
    }

    /// Releases the locks that a handler has taken by name, and returns whether the session is
    /// otherwise as it was opened.
    pub(crate) async fn is_unchanged(
        self,
        connection: &mut MySqlConnection,
    ) -> Result<bool, sqlx::Error> {
        message("DO RELEASE_ALL_LOCKS()").execute(&mut *connection).await?;
        Ok(changes(connection).await? == self.changes)
    }
}

async fn changes(connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
    let rows = message(CHANGES).fetch_all(connection).await?;
    let mut changes = 0;
    for row in rows {
        let count: String = row.try_get(1)?;
        changes += count.parse::<u64>().unwrap_or(0);
    }
    Ok(changes)
}
