//! The worker: a process with both handlers, which the page can kill and restart.

use std::{
    error::Error,
    fs,
    io::{self, BufRead, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use actix_web::{App, HttpServer, rt::task::spawn_blocking};
use idempotent_actix::{Idempotency, store};

use crate::{demo::checkout, terminal::print};

/// The namespace of the records.
const NAMESPACE: &str = "demo";
/// The line that a worker prints before its address.
const LISTENING: &str = "demo: listening on ";

/// Opens the store that the front process and the worker share.
pub(crate) async fn open_store(directory: &Path) -> Result<Idempotency, Box<dyn Error>> {
    let url = format!("sqlite:{}", directory.join("keys.db").display());
    let store = store::connect(&url).await?;
    store::Store::migrate(&store).await?;
    Ok(Idempotency::builder(store).namespace(NAMESPACE).build())
}

/// Runs the worker until its standard input is closed, which happens at the latest when the front
/// process ends. Then it removes the directory.
pub(crate) async fn run(bank: String, directory: PathBuf) -> Result<(), Box<dyn Error>> {
    let removed = directory.clone();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = fs::remove_dir_all(&removed);
        std::process::exit(0);
    });
    let idempotency = open_store(&directory).await?;
    let app = move || {
        App::new().app_data(idempotency.clone()).configure(|config| checkout::routes(config, &bank))
    };
    let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0")?;
    let address = *server.addrs().first().ok_or("the worker has no address")?;
    print(&format!("{LISTENING}{address}"));
    Ok(server.run().await?)
}

/// A worker process. It is killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Worker {
    /// Starts a worker and waits until it listens.
    pub(crate) async fn start(bank: String, directory: PathBuf) -> io::Result<Self> {
        spawn_blocking(move || Self::spawn(&bank, &directory)).await?
    }

    fn spawn(bank: &str, directory: &Path) -> io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["demo-worker", "--bank", bank, "--directory"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut worker = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        if let Some(output) = worker.child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim_end().strip_prefix(LISTENING).and_then(|text| text.parse().ok());
        worker.address =
            address.ok_or_else(|| io::Error::other("the worker ended before it listened"))?;
        Ok(worker)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Worker {
    /// Sends SIGKILL, so that nothing of the worker runs any more.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
