//! The directions between the crates, as `cargo tree` sees them.

use std::process::Command;

fn tree(arguments: &[&str]) -> Vec<String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let lines = String::from_utf8(cargo.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn the_core_knows_no_http_and_no_backend() {
    let tree = tree(&["-p", "idempotent-core", "--no-default-features"]);
    assert!(tree.contains(&"sha2".to_owned()), "this is not the tree of the core");
    for unwanted in ["actix-web", "actix-http", "axum", "http", "hyper", "sqlx", "sqlx-core", "redis"] {
        assert!(!tree.iter().any(|package| package == unwanted), "the core depends on {unwanted}");
    }
}

#[test]
fn the_macros_depend_on_three_crates() {
    let mut direct = tree(&["-p", "idempotent-macros", "--depth", "1"]);
    direct.sort();
    assert_eq!(direct, ["idempotent-macros", "proc-macro2", "quote", "syn"]);
}

#[test]
fn the_runtime_names_no_store() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../idempotent-core/src");
    let mut runtime = std::fs::read_to_string(source.join("runtime.rs")).unwrap();
    for file in std::fs::read_dir(source.join("runtime")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() && !path.ends_with("tests.rs") {
            runtime += &std::fs::read_to_string(path).unwrap();
        }
    }
    assert!(runtime.contains("store.claim"), "this is not the runtime");
    for store in ["MemoryStore", "SqliteStore", "PostgresStore", "RedisStore", "sqlx", "redis"] {
        assert!(!runtime.contains(store), "the runtime names {store}");
    }
}
