//! The payments server as a process, and its files.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use test_support::{ClientResponse, Pending, Request, WAIT_LIMIT};

use crate::payments::records::Records;

/// A directory with the ledger's file, and the store of the records. Clones share both; the last
/// one removes the directory.
#[derive(Clone)]
pub(crate) struct Files {
    directory: Arc<TempDir>,
    records: Records,
    program: &'static str,
}

impl Files {
    /// Ledger and records in one file.
    pub(crate) fn new() -> Self {
        Self::with(Records::Ledger)
    }

    pub(crate) fn with(records: Records) -> Self {
        let program = env!("CARGO_BIN_EXE_payments-server");
        Self { directory: Arc::new(TempDir::new().unwrap()), records, program }
    }

    /// For servers whose handlers misuse their transaction.
    pub(crate) fn hostile(records: Records) -> Self {
        Self { program: env!("CARGO_BIN_EXE_hostile-server"), ..Self::with(records) }
    }

    /// The value of `--store`.
    pub(crate) fn store(&self) -> String {
        self.records.url(self.directory.path())
    }

    fn ledger(&self) -> PathBuf {
        self.directory.path().join("payments.db")
    }

    fn bank(&self) -> PathBuf {
        self.directory.path().join("bank.db")
    }

    /// The number that a query of the ledger returns.
    pub(crate) fn count(&self, query: &str) -> i64 {
        count_in(&self.ledger(), query)
    }

    /// The number that a query of the bank's file returns.
    pub(crate) fn count_at_bank(&self, query: &str) -> i64 {
        count_in(&self.bank(), query)
    }

    /// The key at the bank of the refund with this id.
    pub(crate) fn refund_key(&self, id: &str) -> String {
        with_sqlite(&self.ledger(), async |connection| {
            let query = sqlx::query_scalar("SELECT refund_key FROM refunds WHERE id = ?1").bind(id);
            query.fetch_one(connection).await.unwrap()
        })
    }

    /// Waits until a query of the bank's file returns this number.
    pub(crate) fn await_count_at_bank(&self, query: &str, number: i64) {
        await_that(|| self.count_at_bank(query) == number, &format!("{number} of {query}"));
    }

    /// Waits until a query returns this number.
    pub(crate) fn await_count(&self, query: &str, number: i64) {
        await_that(|| self.count(query) == number, &format!("{number} of {query}"));
    }

    /// Runs statements in the ledger.
    pub(crate) fn prepare(&self, statements: &'static str) {
        with_sqlite(&self.ledger(), async |connection| {
            sqlx::raw_sql(statements).execute(connection).await.map(drop)
        })
        .unwrap();
    }

    /// Runs `work` while the ledger is locked against writes.
    pub(crate) fn while_locked<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        while_locked(&self.ledger(), work)
    }

    /// Runs `work` while the bank's file is locked against writes. After 10 s the bank gives up.
    pub(crate) fn while_bank_locked<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        while_locked(&self.bank(), work)
    }

    /// Makes all leases expire.
    pub(crate) fn end_leases(&self) {
        self.records.end_leases(self.directory.path());
    }

    /// Makes all records in the ledger's file expire.
    pub(crate) fn end_ttls(&self) {
        let changed = change(
            &self.ledger(),
            "UPDATE idempotency_records SET expires_at = 1, lease_until = 0",
        );
        assert!(changed > 0, "no record was changed");
    }

    /// Makes leases expire, and returns how many.
    pub(crate) fn expire_leases(&self) -> u64 {
        self.records.expire_leases(self.directory.path())
    }

    /// Makes all records in flight expire, and removes them as a purge does.
    pub(crate) fn purge_in_flight(&self) {
        self.records.purge_in_flight(self.directory.path());
    }

    /// Runs statements in the store's database, which must be Postgres.
    pub(crate) fn prepare_store(&self, statements: &str) {
        self.records.prepare(statements);
    }

    /// The result of a query of the store's database: one column of text.
    pub(crate) fn query_store(&self, query: &str) -> Vec<String> {
        self.records.query(self.directory.path(), query)
    }

    /// The number that a query of the store's database returns.
    pub(crate) fn count_in_store(&self, number: &str) -> i64 {
        self.query_store(&format!("SELECT CAST(({number}) AS text)"))[0].parse().unwrap()
    }

    /// Whether the store's file has no writer now.
    pub(crate) fn can_write(&self) -> bool {
        self.records.can_write(self.directory.path())
    }

    /// Whether the records are in a file, which is no process and gets no messages.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.records, Records::Ledger | Records::Sqlite)
    }

    /// The name of the store's database.
    pub(crate) fn database(&self) -> &'static str {
        match self.records {
            Records::Postgres(_) => "Postgres",
            #[cfg(feature = "mysql")]
            Records::MySql(_) => "MariaDB",
            _ => "SQLite",
        }
    }

    /// The number of transactions that are open in the store's database; `None` for a file.
    pub(crate) fn open_transactions(&self) -> Option<&'static str> {
        match self.records {
            Records::Postgres(_) => Some(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
            ),
            #[cfg(feature = "mysql")]
            Records::MySql(_) => Some(
                "SELECT count(*) FROM information_schema.innodb_trx t
                 JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
                 WHERE p.db = database() AND p.id <> connection_id()",
            ),
            _ => None,
        }
    }
}

/// Runs `work` on another thread, because it may wait for futures.
fn while_locked<T: Send>(file: &Path, work: impl FnOnce() -> T + Send) -> T {
    with_sqlite(file, async |connection| {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.unwrap();
        let done = thread::scope(|scope| scope.spawn(work).join());
        sqlx::raw_sql("COMMIT").execute(connection).await.unwrap();
        done.unwrap()
    })
}

pub(crate) fn count_in(file: &Path, query: &str) -> i64 {
    with_sqlite(file, async |connection| {
        sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(connection).await.unwrap()
    })
}

/// Runs a statement and returns the number of changed rows.
pub(crate) fn change(file: &Path, statement: &'static str) -> u64 {
    with_sqlite(file, async |connection| {
        sqlx::query(statement).execute(connection).await.unwrap().rows_affected()
    })
}

/// Runs a query with a new connection to a SQLite file.
pub(crate) fn with_sqlite<T>(
    file: &Path,
    query: impl AsyncFnOnce(&mut SqliteConnection) -> T,
) -> T {
    wait(async {
        // Servers that are killed on a busy machine can keep others waiting for long.
        let options =
            SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(60));
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let result = query(&mut connection).await;
        connection.close().await.unwrap();
        result
    })
}

/// Waits for a future, on a new tokio runtime.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Waits until a condition holds.
pub(crate) fn await_that(holds: impl Fn() -> bool, what: &str) {
    let until = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "timed out while waiting: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A running server. It is killed when it is dropped.
pub(crate) struct Payments {
    pub(crate) address: SocketAddr,
    child: Arc<Mutex<Child>>,
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Payments {
    /// Starts several servers concurrently and waits until they listen.
    pub(crate) fn start_all(number: usize, files: &Files) -> Vec<Self> {
        thread::scope(|scope| {
            let starting: Vec<_> =
                (0..number).map(|_| scope.spawn(|| Self::start(files))).collect();
            starting.into_iter().map(|server| server.join().unwrap()).collect()
        })
    }

    /// Starts a server and waits until it listens.
    pub(crate) fn start(files: &Files) -> Self {
        Self::run(&mut Self::command(files, &files.store()))
    }

    /// Starts a server with this address and this store, and does not wait.
    pub(crate) fn spawn_at(files: &Files, listen: &str, store: &str) -> Child {
        let mut command = Command::new(files.program);
        command.args(["--listen", listen, "--store", store, "--ledger"]).arg(files.ledger());
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Starts a server that reaches its store and its bank at these addresses.
    pub(crate) fn start_with(
        files: &Files,
        store: &str,
        bank: SocketAddr,
        arguments: &[&str],
    ) -> Self {
        let mut command = Self::command(files, store);
        Self::run(command.args(arguments).env("BANK_URL", format!("http://{bank}")))
    }

    /// Starts a bank and waits until it listens.
    pub(crate) fn start_bank(files: &Files) -> Self {
        let mut command = Command::new(files.program);
        Self::run(command.args(["bank", "--listen", "127.0.0.1:0", "--file"]).arg(files.bank()))
    }

    fn command(files: &Files, store: &str) -> Command {
        let mut command = Command::new(files.program);
        command.args(["--listen", "127.0.0.1:0", "--store", store, "--ledger"]).arg(files.ledger());
        // The emulator of DynamoDB accepts any credentials.
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command
    }

    /// Runs a command that prints `listening on http://ADDRESS`, and waits until it does. Runs it
    /// again if it ends before, as a supervisor does: a busy database may not respond in time when
    /// a server starts.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut run = || Self::try_run(command);
        let started = run().or_else(|_| run()).or_else(|_| run());
        // The reason is in the output of the test, on stderr.
        started.unwrap_or_else(|status| panic!("a program ended early: {status}"))
    }

    fn try_run(command: &mut Command) -> Result<Self, ExitStatus> {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address =
            output.find_map(|line| line.split_once("listening on http://")?.1.parse().ok());
        let Some(address) = address else { return Err(child.wait().unwrap()) };
        let lines = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let written = lines.clone();
        let reader = thread::spawn(move || {
            for line in output {
                written.0.lock().unwrap().push(line);
                written.1.notify_all();
            }
        });
        Ok(Self { address, child: Arc::new(Mutex::new(child)), lines, reader: Some(reader) })
    }

    pub(crate) fn begin(&self, request: &Request) -> Pending {
        Pending::send(self.address, &request.bytes())
    }

    pub(crate) fn send(&self, request: &Request) -> ClientResponse {
        self.begin(request).response()
    }

    /// Waits until the server has written a line that contains this.
    pub(crate) fn await_line(&self, part: &str) {
        let (lines, written) = &*self.lines;
        let missing = |lines: &mut Vec<String>| !lines.iter().any(|line| line.contains(part));
        let waited =
            written.wait_timeout_while(lines.lock().unwrap(), WAIT_LIMIT, missing).unwrap();
        assert!(
            !waited.1.timed_out(),
            "timed out while waiting for a line with {part:?}: {:#?}",
            waited.0
        );
    }

    /// Returns a function that sends SIGKILL, and waits until the server has ended.
    pub(crate) fn killer(&self) -> impl FnOnce() + Send + 'static {
        let child = self.child.clone();
        move || {
            let mut child = child.lock().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends SIGKILL, and returns all lines that the server has written.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.killer()();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut self.lines.0.lock().unwrap())
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(self) -> ExitStatus {
        self.signal("TERM");
        self.child.lock().unwrap().wait().unwrap()
    }

    /// Sends SIGSTOP and waits until every thread has stopped. The server keeps its locks and
    /// connections.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        await_that(|| self.is_paused(), "the server stops");
    }

    /// Whether every thread of the server has stopped.
    fn is_paused(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let status = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread?.path().join("status"))
        };
        // A thread may end concurrently.
        threads.map(status).all(|status| status.is_ok_and(|status| status.contains("State:\tT")))
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn id(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args(["-s", name]).arg(self.id().to_string()).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Payments {
    fn drop(&mut self) {
        // The server may have ended already.
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}
