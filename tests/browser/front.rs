//! The payments server that serves the page, and what its bank and its store have.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use idempotent_actix::{
    Idempotency, Key,
    scope::ScopeId,
    store::{self, RecordState, Snapshot, Store},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The line around the address of the page.
const PAGE_LINE: [&str; 2] = ["payments: open ", " in a browser to see what #[idempotent] does"];

/// A payments server. It is stopped when it is dropped.
pub(crate) struct Front {
    child: Child,
    /// The address of the page.
    pub(crate) url: String,
    directory: Arc<TempDir>,
}

impl Front {
    /// Starts a server and waits until it listens.
    pub(crate) fn start() -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()))
    }

    /// Kills the server, and starts it again with its files. It has another address.
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        *self = Self::start_in(self.directory.clone());
    }

    /// A file of the server.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start_in(directory: Arc<TempDir>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_page-server"))
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(directory.path())
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| {
            Some(line.strip_prefix(PAGE_LINE[0])?.strip_suffix(PAGE_LINE[1])?.to_owned())
        });
        let url = url.expect("the server prints the address of the page");
        lines.find(|line| line.contains("listening on")).expect("the server listens");
        thread::spawn(move || lines.for_each(drop));
        Self { child, url, directory }
    }

    /// How the server has ended, unless it still runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.trim_end_matches('/').rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Calls the front as the page does.
    pub(crate) async fn call(&self, action: &str, body: Value) -> Value {
        let request = reqwest::Client::new().post(format!("{}demo/control/{action}", self.url));
        let response: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
        assert_eq!(response["ok"], json!(true), "{action}: {response}");
        response["value"].clone()
    }

    /// What the bank and the front have counted.
    pub(crate) async fn books(&self, visit: &str, run: u64) -> Value {
        let url = format!("{}demo/control/books?visit={visit}&run={run}", self.url);
        let response: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(response["ok"], json!(true), "{response}");
        response["value"].clone()
    }

    /// The record of a run's key, as the store of the worker has it.
    pub(crate) async fn record(&self, visit: &str, run: u64, key: &str) -> Option<Snapshot> {
        let scope = ScopeId::of("user", format!("{visit}-{run}"));
        let key = Key::from_text(key).unwrap();
        for file in self.stores() {
            let store = store::connect(&format!("sqlite:{}", file.display())).await.unwrap();
            assert!(store.transactions().is_some(), "this is not the store of the worker");
            let keys = Idempotency::builder(store).namespace("demo").purge_every(None).build();
            let id = keys.record_id(&scope, "POST /guarded/checkout", &key).unwrap();
            if let Some(found) = keys.find_record(&id).await.unwrap() {
                return Some(found);
            }
        }
        None
    }

    fn stores(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.directory.path()).unwrap();
        let files = folders.map(|folder| folder.unwrap().path().join("keys.db"));
        files.filter(|file| file.exists()).collect()
    }
}

/// The state of a record in the words of the page.
pub(crate) fn state_of(found: Option<&Snapshot>) -> &'static str {
    match found {
        None => "absent",
        Some(Snapshot { record, at, .. }) if record.is_held(*at) => "held",
        Some(Snapshot { record, .. }) => match record.state {
            RecordState::Completed(_) => "completed",
            RecordState::InFlight | RecordState::Held => "in_flight",
        },
    }
}

impl Drop for Front {
    /// The worker ends with the server.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
