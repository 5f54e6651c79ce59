//! Private MariaDB servers.
//!
//! Each uses a temporary directory and a free port, and runs as the user `mysql` when the test runs
//! as root. It ends with the process of the test, as [`postgres`](super::postgres) servers do.

use std::{
    env, fs, io,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

use super::process::{Watchdog, as_user, directory_of, free_port, run, unique_name, watchdog};
use crate::WAIT_LIMIT;

const MISSING: &str = "MariaDB's server programs are missing; install them (Debian: `apt-get \
    install mariadb-server`), or set MYSQL_URL";
/// The user who owns the files of a server.
const USER: &str = "mysql";

/// A running server.
pub struct MariaDb {
    directory: PathBuf,
    /// The port on this machine.
    pub port: u16,
    settings: Vec<String>,
    _watchdog: Watchdog,
}

/// The server that the tests of this process share: the one that `MYSQL_URL` names, or a private
/// one.
pub fn shared() -> &'static str {
    static SHARED: OnceLock<(Option<MariaDb>, String)> = OnceLock::new();
    let start = || match env::var("MYSQL_URL") {
        Ok(url) if !url.is_empty() => (None, url),
        _ => {
            let server = MariaDb::without_fsync();
            let url = server.url("mysql");
            (Some(server), url)
        }
    };
    &SHARED.get_or_init(start).1
}

/// The URL of a new database on the shared server.
pub async fn database() -> String {
    database_on(shared()).await
}

/// The URL of a new database on the server of a URL.
pub async fn database_on(url: &str) -> String {
    let name = unique_name();
    sql(url, format!("CREATE DATABASE {name}")).await;
    let (server, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = server.rsplit_once('/').unwrap();
    if parameters.is_empty() {
        format!("{server}/{name}")
    } else {
        format!("{server}/{name}?{parameters}")
    }
}

/// Runs statements in the database of a URL.
pub async fn sql(url: &str, text: impl Into<String>) {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text.into())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// The single number that a query returns.
pub async fn number(url: &str, text: impl Into<String>) -> i64 {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    let number = sqlx::query_scalar(AssertSqlSafe(text.into()));
    let number = number.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    number
}

/// An installed server program.
fn program(name: &str) -> PathBuf {
    let mut directories: Vec<PathBuf> =
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    directories.push("/usr/sbin".into());
    let mut programs = directories.into_iter().map(|directory| directory.join(name));
    programs.find(|program| program.exists()).expect(MISSING)
}

impl MariaDb {
    /// A new, empty server, whose commits survive a crash of the machine.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A new server that does not wait for its disk, for tests in which the machine does not crash.
    pub fn without_fsync() -> Self {
        Self::with(&["--innodb-flush-method=nosync", "--max-connections=400"])
    }

    /// A new server with further settings.
    pub fn with(settings: &[&str]) -> Self {
        let directory = directory_of(USER);
        let stop = r#"kill -9 "$(cat "$1/pid")" 2>/dev/null; sleep 0.1; rm -rf "$1""#;
        let _watchdog = watchdog(stop, &[&directory]);
        initialize(&directory.join("data"));
        let settings = settings.iter().map(ToString::to_string).collect();
        let server = Self { directory, port: free_port(), settings, _watchdog };
        server.start_again();
        server
    }

    /// Starts the server on the same port after [`stop`](Self::stop).
    pub fn start_again(&self) {
        let path = |name: &str| self.directory.join(name).display().to_string();
        // Every test user may do everything, and creates other users itself.
        let users = "CREATE USER IF NOT EXISTS test@'%';\n\
                     GRANT ALL ON *.* TO test@'%' WITH GRANT OPTION;\n";
        fs::write(path("users.sql"), users).unwrap();
        let log = fs::OpenOptions::new().create(true).append(true).open(path("log")).unwrap();
        let mut command = as_user(USER, program("mariadbd"));
        command
            .arg("--no-defaults")
            .arg(format!("--datadir={}", path("data")))
            // A server that starts deletes the temporary tables of all that share its directory.
            .arg(format!("--tmpdir={}", self.directory.display()))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--init-file={}", path("users.sql")))
            .arg(format!("--port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--silent-startup"])
            .args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"])
            .args(&self.settings);
        let (out, errors) = (log.try_clone().unwrap(), log);
        command.stdin(Stdio::null()).stdout(out).stderr(errors).current_dir("/");
        // In a process group of its own, so that Ctrl-C does not end it before the test.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().unwrap();
        std::thread::spawn(move || child.wait());
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + 2 * WAIT_LIMIT;
        while !self.is_ready() {
            assert!(Instant::now() < deadline, "the server did not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the server greets a client: it then has the users of the tests.
    fn is_ready(&self) -> bool {
        let greeting = || -> io::Result<u8> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            let mut packet = [0; 5];
            io::Read::read_exact(&mut stream, &mut packet)?;
            Ok(packet[4])
        };
        // 255 would be an error.
        greeting().is_ok_and(|protocol| protocol == 10)
    }

    /// The server's log.
    pub fn log(&self) -> String {
        let log = fs::read(self.directory.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Stops the server at once, like a crash.
    pub fn stop(&self) {
        let pid = self.process();
        self.signal("-KILL");
        let deadline = Instant::now() + WAIT_LIMIT;
        while Path::new(&format!("/proc/{pid}")).exists() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Suspends the server (`SIGSTOP`), so that it does not respond.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets the server continue after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// The id of the server's process.
    pub fn process(&self) -> u32 {
        fs::read_to_string(self.directory.join("pid")).unwrap().trim().parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        run(Command::new("kill").arg(signal).arg(self.process().to_string()));
    }

    /// The URL of a database on the server.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://test@127.0.0.1:{}/{database}", self.port)
    }
}

/// Creates the data directory of a server: a copy of one that each process creates once, since that
/// takes longer than most tests.
fn initialize(data: &Path) {
    static CREATED: OnceLock<(PathBuf, Watchdog)> = OnceLock::new();
    let create = || {
        let directory = directory_of(USER);
        let removal = watchdog(r#"rm -rf "$1""#, &[&directory]);
        let created = directory.join("data");
        run(as_user(USER, program("mariadb-install-db"))
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", created.display())));
        (created, removal)
    };
    run(as_user(USER, "cp").arg("-a").args([&CREATED.get_or_init(create).0, data]));
}
