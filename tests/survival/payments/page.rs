//! The page of the payments server, without a browser: what it refuses, and what it leaves behind.
//! `tests/browser` has the rest.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{Pending, Request};

use crate::payments::server::{Payments, await_that};

const VISIT: &str = "visit0001";

/// A server whose temporary files are in a directory of their own.
fn start(directory: &TempDir) -> Payments {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payments-server"));
    command.args(["--listen", "127.0.0.1:0"]).current_dir(directory);
    Payments::run(command.env("TMPDIR", directory.path()))
}

fn call(action: &str, body: &Value) -> Request {
    Request::post(&format!("/demo/control/{action}")).json(body.to_string())
}

/// Opens the events of a visit, starts a run, and pays at a bank that does not respond. Returns the
/// stream and the worker's process.
fn visit(server: &Payments) -> (Pending, u64) {
    let events = Request::new("GET", &format!("/demo/control/events?visit={VISIT}"));
    let mut events = server.begin(&events);
    events.read_until("retry: 500");
    let started = server.send(&call("start", &json!({ "visit": VISIT }))).json();
    assert_eq!(started, json!({ "ok": true, "value": { "run": 1 } }));
    let run = events.read_until("\"type\":\"run\"");
    let process = run.split_once("\"worker\":").unwrap().1;
    let process = process.split(|digit: char| !digit.is_ascii_digit()).next().unwrap();
    server.send(&call("bank", &json!({ "visit": VISIT, "run": 1, "mode": "stuck" })));
    let payment = json!({ "visit": VISIT, "run": 1, "side": "guarded", "amount": 4900 });
    server.send(&call("pay", &payment));
    events.read_until("\"type\":\"bank_called\"");
    (events, process.parse().unwrap())
}

fn runs(process: u64) -> bool {
    // A process that has ended and that nobody has waited for is a zombie.
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn workers_directories(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().starts_with("payments-demo-")).count()
}

#[test]
fn the_page_is_beside_the_api_and_changes_nothing_of_it() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    let page = server.send(&Request::new("GET", "/"));
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    for unknown in ["/index.html", "/demo", "/demo/", "/demo/x"] {
        let response = server.send(&Request::new("GET", unknown));
        assert_eq!((response.status, &response.json()["code"]), (404, &json!("url_unknown")));
    }
    assert_eq!(server.send(&Request::new("GET", "/demo/files/main.rs")).status, 404);
    let specification = server.send(&Request::new("GET", "/idempotency"));
    assert!(!specification.text().contains("checkout"), "{}", specification.text());
    assert_eq!(specification.json()["operations"].as_array().unwrap().len(), 4);
    assert_eq!(workers_directories(directory.path()), 1);
}

#[test]
fn the_page_and_its_files_respond_to_head_as_to_get_without_the_body() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    for path in ["/", "/demo/files/main.js"] {
        let page = server.send(&Request::new("GET", path));
        let mut connection = server.begin(&Request::new("HEAD", path));
        connection.send_more(&Request::new("GET", "/unknown").bytes());
        let responses = connection.read_until("url_unknown");
        let (head, next) = responses.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(next.starts_with("HTTP/1.1 404 "), "{path} has a body: {next}");
        for (name, value) in page.headers.iter().filter(|(name, _)| name != "date") {
            let line = format!("\r\n{name}: {}", String::from_utf8_lossy(value));
            assert!(head.contains(&line), "{path}: {line} is missing in {head}");
        }
    }
}

#[test]
fn calls_of_other_sites_are_refused() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    let (_events, worker) = visit(&server);
    let kill = call("kill", &json!({ "visit": VISIT }));
    for (name, value) in [
        ("Origin", "https://attacker.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "none"),
    ] {
        assert_eq!(server.send(&kill.clone().header(name, value)).status, 403, "{name}: {value}");
    }
    // What a form of another site can send.
    let form = Request::post("/demo/control/kill").header("Content-Type", "text/plain");
    let form = form.body(json!({ "visit": VISIT }).to_string());
    assert_eq!(server.send(&form).status, 400);
    assert!(runs(worker));
    assert_eq!(server.send(&kill.header("Origin", "http://localhost")).status, 200);
    assert!(!runs(worker));
}

#[test]
fn a_worker_that_something_else_has_killed_is_noticed_and_restarted() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    let (mut events, worker) = visit(&server);
    let killed = Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap();
    assert!(killed.success());
    // The end of a process can be seen only when all of its threads have ended.
    let restart = || {
        let restarted = server.send(&call("restart", &json!({ "visit": VISIT }))).json();
        restarted["value"]["process"].as_u64().unwrap()
    };
    await_that(|| restart() != worker, "another worker");
    let process = restart();
    assert!(runs(process) && !runs(worker));
    let seen = events.read_until(&format!("\"process\":{process}"));
    assert!(seen.contains(&format!("\"process\":{worker},\"type\":\"worker\",\"up\":false")));
}

#[test]
fn a_shutdown_waits_neither_for_open_events_nor_for_the_worker() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    let (_events, worker) = visit(&server);
    assert!(runs(worker) && workers_directories(directory.path()) == 1);
    let begun = Instant::now();
    assert!(server.stop().success());
    // actix-web would wait 30 s for a connection that is in use.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(!runs(worker));
    assert_eq!(workers_directories(directory.path()), 0);
}

#[test]
fn a_server_that_is_killed_leaves_no_worker_and_no_files() {
    let directory = TempDir::new().unwrap();
    let server = start(&directory);
    let (_events, worker) = visit(&server);
    assert!(runs(worker) && workers_directories(directory.path()) == 1);
    server.kill();
    await_that(|| !runs(worker), "the worker ends");
    assert_eq!(workers_directories(directory.path()), 0);
}
