//! A private PgBouncer, in transaction mode unless a test needs another.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::postgres::{Watchdog, as_postgres, directory, free_port, run, watchdog};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// How many server sessions all clients of a pooler share.
pub const SESSIONS: i64 = 3;

/// A running pooler.
pub struct PgBouncer {
    directory: PathBuf,
    port: u16,
    _watchdog: Watchdog,
}

impl PgBouncer {
    /// Starts a pooler in front of the server on a port of this machine.
    pub fn in_front_of(server: u16) -> Self {
        Self::with(server, "")
    }

    /// A pooler that resets a session after each transaction, so that settings of one client do not
    /// reach the next.
    pub fn with_session_resets(server: u16) -> Self {
        Self::with(server, "server_reset_query = DISCARD ALL\nserver_reset_query_always = 1\n")
    }

    /// A pooler whose clients wait at most one second for a session.
    pub fn with_wait_timeout(server: u16) -> Self {
        Self::with(server, "query_wait_timeout = 1\n")
    }

    /// A pooler whose clients keep their sessions as long as they are connected.
    pub fn in_session_mode(server: u16) -> Self {
        Self::with(server, "pool_mode = session\ndefault_pool_size = 40\n")
    }

    /// A pooler that gives a session away after each statement, so that there are no transactions.
    pub fn in_statement_mode(server: u16) -> Self {
        Self::with(server, "pool_mode = statement\n")
    }

    /// A pooler with one session for all its clients.
    pub fn with_one_session(server: u16) -> Self {
        Self::with(server, "default_pool_size = 1\n")
    }

    fn with(server: u16, extra_settings: &str) -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "PgBouncer is missing; install it (Debian: `apt-get install pgbouncer`)"
        );
        let (directory, port) = (directory(), free_port());
        let file = |name| directory.join(name).display().to_string();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {SESSIONS}\nlogfile = {}\n\
             pidfile = {}\n{extra_settings}",
            file("users"),
            file("log"),
            file("pid"),
        );
        fs::write(file("users"), "\"postgres\" \"\"\n").unwrap();
        fs::write(file("ini"), settings).unwrap();
        let _watchdog =
            watchdog(r#"kill "$(cat "$1/pid")"; sleep 0.2; rm -rf "$1""#, &[&directory]);
        run(as_postgres(PROGRAM).args(["-q", "-d"]).arg(file("ini")));
        let accepts = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        for _ in 0..100 {
            if accepts() {
                return Self { directory, port, _watchdog };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", fs::read_to_string(file("log")).unwrap_or_default());
    }

    /// The pooler's log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("log")).unwrap()).into_owned()
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
