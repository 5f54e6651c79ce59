//! The script `two-servers` prints what its header shows, on Redis, which it starts, and on
//! Postgres and MariaDB.

use std::process::Command;

use crate::payments::{getting_started::assert_prints, records::Records, server::Files};

/// Runs the script, on a new store each time, until the store responds in time: a busy machine may
/// keep it from that.
fn run(store: impl Fn() -> Option<String>) {
    let printed = (0..3).map(|_| print(store())).find(|printed| !printed.contains(" 503 "));
    check(&printed.expect("the store responds in time"));
}

fn print(store: Option<String>) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/payments/two-servers");
    let ran = Command::new(script)
        .args(store)
        .env("PAYMENTS", env!("CARGO_BIN_EXE_payments-server"))
        .output()
        .unwrap();
    let (printed, errors) =
        (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && errors.is_empty(), "{}: {errors}\n{printed}", ran.status);
    printed
}

fn check(printed: &str) {
    let text = include_str!("../../../examples/payments/two-servers");
    let shown = text
        .lines()
        .skip_while(|line| *line != "# It prints:")
        .skip(1)
        .take_while(|line| line.starts_with('#'));
    let shown: Vec<_> = shown.map(|line| line.trim_start_matches('#').trim_start()).collect();
    assert!(shown.len() >= 20, "{shown:#?}");
    assert_prints("two-servers", printed, shown.into_iter());
    let bodies: Vec<_> =
        printed.lines().filter(|line| line.starts_with("{\"amount\":2000,")).collect();
    assert!(bodies.len() == 2 && bodies[0] == bodies[1], "{bodies:#?}");
}

#[test]
fn two_servers_on_redis_print_what_the_script_shows() {
    run(|| None);
}

#[test]
fn two_servers_on_postgres_print_what_the_script_shows() {
    run(|| Some(Files::with(Records::postgres()).store()));
}

#[cfg(feature = "mysql")]
#[test]
fn two_servers_on_mysql_print_what_the_script_shows() {
    run(|| Some(Files::with(Records::mysql()).store()));
}
