//! Private Postgres servers.
//!
//! Each uses a temporary directory and a free port, and runs as the user `postgres` when the test
//! runs as root. It ends with the process of the test, even if that is killed: a separate watchdog
//! process reads from a pipe that only the process of the test holds open.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

pub use super::process::{Watchdog, free_port, run, unique_name, watchdog};
use super::process::{as_user, directory_of, is_root};

const MISSING: &str = "Postgres' server programs are missing; install them (Debian: `apt-get \
    install postgresql`), or set DATABASE_URL";

/// A running server.
pub struct Postgres {
    directory: PathBuf,
    /// The port on this machine.
    pub port: u16,
    settings: &'static str,
    _watchdog: Watchdog,
}

/// The server that the tests of this process share: the one that `DATABASE_URL` names, or a private
/// one.
pub fn shared() -> &'static str {
    static SHARED: OnceLock<(Option<Postgres>, String)> = OnceLock::new();
    let start = || match env::var("DATABASE_URL") {
        Ok(url) if url.starts_with("postgres") => (None, url),
        _ => {
            let server = Postgres::without_fsync();
            let url = server.url("postgres");
            (Some(server), url)
        }
    };
    &SHARED.get_or_init(start).1
}

/// The URL of a new database on the shared server.
pub async fn database() -> String {
    let name = unique_name();
    sql(shared(), format!("CREATE DATABASE {name}")).await;
    let (server, parameters) = shared().split_once('?').unwrap_or((shared(), ""));
    let (server, _) = server.rsplit_once('/').unwrap();
    format!("{server}/{name}?{parameters}")
}

/// Runs statements in the database of a URL.
pub async fn sql(url: &str, text: impl Into<String>) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text.into())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The single number that a query returns.
pub async fn number(url: &str, text: impl Into<String>) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(text.into())).fetch_one(&mut connection).await.unwrap()
}

/// A temporary directory that the server's user owns.
pub fn directory() -> PathBuf {
    directory_of("postgres")
}

/// A command that runs as the user `postgres` if this process runs as root.
pub fn as_postgres(program: impl AsRef<Path>) -> Command {
    as_user("postgres", program)
}

/// The newest installed version of a server program.
pub fn program(name: &str) -> PathBuf {
    let installed =
        |directory: &Path| Some(directory.join(name)).filter(|program| program.exists());
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(io::Result::ok);
    let mut versions: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    versions.sort_by(|one, other| other.cmp(one));
    versions.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    versions.iter().find_map(|directory| installed(directory)).expect(MISSING)
}

impl Postgres {
    /// A new, empty server, with `fsync` on and `pg_stat_statements` loaded.
    pub fn start() -> Self {
        Self::with_data(initialize, "")
    }

    /// A new server with `fsync` off, for tests in which the machine does not crash.
    pub fn without_fsync() -> Self {
        Self::with_data(initialize, " -c fsync=off -c max_connections=400")
    }

    /// A standby that replicates this server.
    pub fn standby(&self) -> Self {
        let source = self.url("");
        Self::with_data(
            |data| {
                run(as_postgres(program("pg_basebackup"))
                    .args(["-R", "--checkpoint=fast", "-d", &source, "-D"])
                    .arg(data));
            },
            "",
        )
    }

    fn with_data(create: impl FnOnce(&Path), settings: &'static str) -> Self {
        let (directory, pg_ctl) = (directory(), program("pg_ctl"));
        let stop = if is_root() { "runuser -u postgres -- " } else { "" };
        let stop = format!(r#"{stop}"$1" stop -m immediate -D "$2/data"; rm -rf "$2""#);
        let _watchdog = watchdog(&stop, &[&pg_ctl, &directory]);
        create(&directory.join("data"));
        let server = Self { directory, port: free_port(), settings, _watchdog };
        server.start_again();
        server
    }

    /// Starts the server on the same port after [`stop`](Self::stop).
    pub fn start_again(&self) {
        let Self { directory, port, settings, .. } = self;
        let settings = format!(
            "-p {port} -k {} -c listen_addresses=127.0.0.1 -c max_connections=200 -c \
             max_prepared_transactions=10 -c shared_preload_libraries=pg_stat_statements{settings}",
            directory.display()
        );
        self.control(&["start", "-w", "-o", &settings, "-l"], Some(&directory.join("log")));
    }

    /// The server's log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join("log")).unwrap()).into_owned()
    }

    /// Stops the server at once, like a crash.
    pub fn stop(&self) {
        self.control(&["stop", "-m", "immediate"], None);
    }

    /// Suspends every process of the server (`SIGSTOP`), so that it does not respond.
    pub fn pause(&self) {
        // The postmaster first, so that it starts no more processes.
        self.signal("-STOP", &[self.postmaster()]);
        self.signal("-STOP", &self.children());
    }

    /// Lets the server continue after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal("-CONT", &self.children());
        self.signal("-CONT", &[self.postmaster()]);
    }

    fn postmaster(&self) -> u32 {
        let file = fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap();
        file.lines().next().unwrap().trim().parse().unwrap()
    }

    fn children(&self) -> Vec<u32> {
        let parent = self.postmaster().to_string();
        let processes = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_child = |process: &u32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // The process name in parentheses may contain anything.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent))
        };
        processes.filter(is_child).collect()
    }

    /// Sends a signal to processes, some of which may have ended meanwhile.
    fn signal(&self, signal: &str, processes: &[u32]) {
        assert!(!processes.is_empty());
        let _ = Command::new("kill")
            .arg(signal)
            .args(processes.iter().map(u32::to_string))
            .output()
            .unwrap();
    }

    fn control(&self, arguments: &[&str], log: Option<&Path>) {
        run(as_postgres(program("pg_ctl"))
            .arg("-D")
            .arg(self.directory.join("data"))
            .args(arguments)
            .args(log));
    }

    /// The URL of a database on the server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// Creates the data directory of a server: a copy of one that each process creates once, since
/// `initdb` takes longer than most tests.
fn initialize(data: &Path) {
    static CREATED: OnceLock<(PathBuf, Watchdog)> = OnceLock::new();
    let create = || {
        let directory = directory();
        let removal = watchdog(r#"rm -rf "$1""#, &[&directory]);
        let created = directory.join("data");
        let mut create = as_postgres(program("initdb"));
        run(create
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&created));
        (created, removal)
    };
    run(as_postgres("cp").arg("-a").args([&CREATED.get_or_init(create).0, data]));
}
