//! The bytes that MariaDB has on its disk.

use std::{fs, path::PathBuf};

use idempotent_mysql::MySqlStore;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use test_support::servers::mariadb::{MariaDb, database_on};

/// A page of zeros, of which new files mostly consist.
const EMPTY: [u8; 4096] = [0; 4096];

/// A migrated store on a server of its own, with the binary log as a primary has it.
pub(super) async fn store() -> (MariaDb, MySqlStore, String) {
    let server = MariaDb::with(&["--innodb-flush-method=nosync", "--log-bin=binlog"]);
    let url = database_on(&server.url("mysql")).await;
    let store = MySqlStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    (server, store, url)
}

/// The columns of all rows in a database.
pub(super) async fn rows(url: &str) -> Vec<u8> {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    let columns = "SELECT CONCAT('SELECT CAST(COALESCE(`', column_name, '`, '''') AS BINARY)
            FROM `', table_name, '`')
        FROM information_schema.columns WHERE table_schema = DATABASE()";
    let columns: Vec<String> =
        sqlx::query_scalar(columns).fetch_all(&mut connection).await.unwrap();
    assert!(columns.len() > 25, "{columns:?}");
    let mut bytes = Vec::new();
    for column in columns {
        let values = sqlx::query_scalar(AssertSqlSafe(column)).fetch_all(&mut connection);
        let values: Vec<Vec<u8>> = values.await.unwrap();
        bytes.extend(values.concat());
    }
    connection.close().await.unwrap();
    bytes
}

/// The files of the tables in a database: rows, values that are kept beside them, and indexes.
pub(super) async fn tables(url: &str) -> Vec<u8> {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    let tables = "SELECT GROUP_CONCAT('`', table_name, '`')
        FROM information_schema.tables WHERE table_schema = DATABASE()";
    let tables: String = sqlx::query_scalar(tables).fetch_one(&mut connection).await.unwrap();
    // Writes all changes to the files, and keeps them there until the end of the connection.
    let flush = AssertSqlSafe(format!("FLUSH TABLES {tables} FOR EXPORT"));
    sqlx::raw_sql(flush).execute(&mut connection).await.unwrap();
    let directory = "SELECT CONCAT(@@datadir, DATABASE())";
    let directory: String = sqlx::query_scalar(directory).fetch_one(&mut connection).await.unwrap();
    let bytes = files(&directory, |name| name.ends_with(".ibd"));
    connection.close().await.unwrap();
    bytes
}

/// The files of the server beside the tables: the redo log, the binary log, and the system
/// tablespace with the undo logs.
pub(super) async fn logs(server: &MariaDb) -> Vec<u8> {
    let mut connection = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
    let directory = "SELECT @@datadir";
    let directory: String = sqlx::query_scalar(directory).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    files(&directory, |name| {
        ["ib_logfile", "ibdata", "undo", "binlog."].iter().any(|log| name.starts_with(log))
    })
}

/// The contents of the files of a directory that have such names, without empty pages.
fn files(directory: &str, is_read: impl Fn(&str) -> bool) -> Vec<u8> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let is_read =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(&is_read);
    let mut bytes = Vec::new();
    for file in files.filter(is_read) {
        let read = fs::read(&file).unwrap();
        read.chunks(EMPTY.len()).filter(|page| **page != EMPTY).for_each(|page| bytes.extend(page));
    }
    assert!(!bytes.is_empty(), "{directory}");
    bytes
}
