//! The program never hangs.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use test_support::servers::postgres::database;

use crate::program::Program;

/// How long a program may take whose calls are limited to 500 ms, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_server_that_never_responds_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    for scheme in ["postgres://u@", "redis://", "redis+cluster://", "redis+sentinel://"] {
        let path = if scheme.starts_with("redis+sentinel") { "/master" } else { "/0" };
        let path = if scheme.starts_with("redis+cluster") { "" } else { path };
        let url = format!("{scheme}{address}{path}");
        let began = Instant::now();
        let error = Program::new(&["list", "--timeout", "500ms", "--url", &url]).fails(1);
        assert!(began.elapsed() < LIMIT, "{scheme}: {:?}", began.elapsed());
        assert!(error.contains("error"), "{scheme}: {error}");
    }
}

#[test]
fn a_port_without_a_server_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for scheme in ["postgres://u@", "redis://"] {
        let url = format!("{scheme}{free}/0");
        let began = Instant::now();
        Program::new(&["doctor", "--timeout", "500ms", "--url", &url]).fails(1);
        assert!(began.elapsed() < LIMIT, "{scheme}");
    }
}

#[tokio::test]
async fn a_doctor_names_the_missing_schema() {
    let url = database().await;
    let written = Program::new(&["doctor", "--json"]).with("IDEMPOTENCY_URL", &url).run();
    assert_eq!(written.code, 1, "{written:?}");
    let found: serde_json::Value = serde_json::from_str(&written.out).unwrap();
    assert_eq!(found["checks"][0]["is_passed"], true);
    assert_eq!(found["checks"][1]["is_passed"], false);
    assert!(found["checks"][1]["problem"].as_str().unwrap().contains("migrate"), "{found}");
}
