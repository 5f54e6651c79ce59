//! The emulator of DynamoDB, one private process for each test binary. It ends with the process of
//! the test, even if that is killed: a separate watchdog process reads from a pipe that only the
//! process of the test holds open.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use idempotent_dynamodb::{DynamoDbOptions, DynamoDbStore, internals};

pub use self::proxy::{Fault, FaultProxy, Gate};

mod proxy;

/// Where `tests/dynamodb/install` has installed the emulator.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/moto/bin/python");
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/dynamodb/serve.py");

/// A running emulator.
pub struct Emulator {
    pub port: u16,
    _running: [Child; 2],
}

impl Emulator {
    /// The emulator of this process.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Emulator> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn start() -> Self {
        assert!(Path::new(PYTHON).is_file(), "the emulator is missing: run tests/dynamodb/install");
        let port = free_port();
        let server = Command::new(PYTHON)
            .args([PROGRAM, &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", r#"read -r _; kill -9 "$1""#, "watchdog", &server.id().to_string()]);
        // In a separate process group, so that Ctrl-C does not end it before the test.
        let watchdog = watchdog.process_group(0).stdin(Stdio::piped());
        let watchdog = watchdog.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "the emulator does not start");
            thread::sleep(Duration::from_millis(20));
        }
        Self { port, _running: [server, watchdog] }
    }

    /// The address of the emulator.
    pub fn endpoint(&self) -> String {
        endpoint(self.port)
    }

    /// The URL of a table that no other test uses.
    pub fn url(&self) -> String {
        format!("dynamodb://us-east-1/{}?endpoint={}", unique_table(), self.endpoint())
    }

    /// A store in a new table, which is not created.
    pub fn unmigrated(&self) -> DynamoDbStore {
        open(self.port, &unique_table(), patient())
    }

    /// A store in a new table, created.
    pub async fn store(&self) -> DynamoDbStore {
        let store = self.unmigrated();
        store.migrate().await.unwrap();
        store
    }
}

/// Options for an emulator on a busy machine.
pub fn patient() -> DynamoDbOptions {
    let options = DynamoDbStore::options().response_timeout(Duration::from_secs(15));
    options.call_timeout(Duration::from_secs(60))
}

/// The address of a port of this machine.
pub fn endpoint(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A store in a table of the emulator or a proxy at this port.
pub fn open(port: u16, table: &str, options: DynamoDbOptions) -> DynamoDbStore {
    options.from_client(&internals::client_of(&endpoint(port)), table).unwrap()
}

/// The name of a table that no other test uses.
pub fn unique_table() -> String {
    format!("test-{:x}", fastrand::u64(..))
}

fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.local_addr().unwrap().port()
}
