//! The dependencies of each crate.

use serde_json::Value;

use crate::cargo;

/// The packages in a crate's tree of normal dependencies.
fn tree(arguments: &[&str]) -> Vec<String> {
    tree_of("normal", arguments)
}

/// The packages in a crate's tree of dependencies of these kinds.
fn tree_of(edges: &str, arguments: &[&str]) -> Vec<String> {
    let tree = ["tree", "--offline", "--edges", edges, "--prefix", "none", "--format", "{p}"];
    let lines = cargo(&[&tree, arguments].concat());
    lines.iter().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn assert_without(tree: &[String], unwanted: &[&str]) {
    for unwanted in unwanted {
        assert!(
            !tree.iter().any(|package| package == unwanted),
            "{} depends on {unwanted}",
            tree[0]
        );
    }
}

/// Crates that only tests may use.
const TEST_ONLY: &[&str] = &[
    "expect-test",
    "fantoccini",
    "fuzz-targets",
    "prettyplease",
    "proptest",
    "shuttle",
    "stateright",
    "tempfile",
    "test-support",
    "tests",
    "trybuild",
];

/// The crates that only one of the stores, or a framework, may use.
const BACKENDS: &[&str] = &["sqlx", "sqlx-core", "redis", "deadpool", "rustls", "aws-sdk-dynamodb"];
const FRAMEWORKS: &[&str] =
    &["actix-web", "actix-http", "axum", "http", "hyper", "idempotent-macros", "idempotent-actix"];

#[test]
fn the_core_depends_on_no_http_crate_and_no_backend() {
    let tree = tree(&["-p", "idempotent-core", "--all-features"]);
    assert!(tree.contains(&"sha2".to_owned()), "this is not the dependency tree of the core");
    assert_without(&tree, &[BACKENDS, FRAMEWORKS].concat());
}

/// Neither do its tests.
#[test]
fn a_store_depends_on_no_framework_and_on_no_other_backend() {
    for (store, backend, others) in [
        (
            "idempotent-sqlite",
            "sqlx-sqlite",
            &["sqlx-postgres", "sqlx-mysql", "redis", "rustls"][..],
        ),
        (
            "idempotent-postgres",
            "sqlx-postgres",
            &["sqlx-sqlite", "sqlx-mysql", "redis", "rustls"][..],
        ),
        (
            "idempotent-mysql",
            "sqlx-mysql",
            &["sqlx-sqlite", "sqlx-postgres", "redis", "rustls"][..],
        ),
        ("idempotent-redis", "redis", &["sqlx", "sqlx-core", "deadpool"][..]),
    ] {
        for edges in ["normal", "normal,build,dev"] {
            let tree = tree_of(edges, &["-p", store, "--all-features"]);
            assert!(tree.iter().any(|package| package == backend), "{tree:?}");
            assert_without(&tree, &[others, FRAMEWORKS].concat());
        }
    }
}

#[test]
fn http_depends_on_no_framework_and_no_backend() {
    let tree = tree(&["-p", "idempotent-http", "--all-features"]);
    assert!(tree.contains(&"idempotent-core".to_owned()), "{tree:?}");
    assert_without(
        &tree,
        &["actix-web", "actix-http", "axum", "http", "hyper", "reqwest", "sqlx", "redis"],
    );
}

#[test]
fn the_client_depends_on_no_server_and_no_database() {
    let tree = tree(&["-p", "idempotent-client"]);
    assert!(tree.contains(&"reqwest".to_owned()), "this is not the dependency tree of the client");
    assert_without(&tree, &["actix-web", "idempotent-actix", "idempotent-macros", "sqlx", "redis"]);
}

#[test]
fn the_command_line_depends_on_no_framework() {
    let tree = tree(&["-p", "idempotent-cli", "--all-features"]);
    assert!(tree.contains(&"clap".to_owned()), "this is not the dependency tree of the program");
    assert_without(&tree, &["actix-web", "idempotent-actix", "idempotent-macros", "crossterm"]);
}

#[test]
fn only_the_console_depends_on_what_it_needs_for_pages() {
    let tree_of_console = tree(&["-p", "idempotent-console"]);
    assert!(tree_of_console.contains(&"maud".to_owned()), "{tree_of_console:?}");
    assert_without(&tree_of_console, &["sqlx", "sqlx-core", "redis"]);
    assert_without(&tree(&["-p", "idempotent-actix", "--all-features"]), &["maud"]);
}

#[test]
fn the_macro_crate_has_three_direct_dependencies() {
    let mut direct = tree(&["-p", "idempotent-macros", "--depth", "1"]);
    direct.sort();
    assert_eq!(direct, ["idempotent-macros", "proc-macro2", "quote", "syn"]);
}

#[test]
fn published_crates_depend_on_no_test_only_crate() {
    assert_without(
        &tree(&["-p", "idempotent-core", "--features", "memory,encrypt,conformance"]),
        TEST_ONLY,
    );
    let features = "memory,sqlite,postgres,mysql,redis,redis-tls,dynamodb,conformance,identity,httpauth,encrypt";
    assert_without(&tree(&["-p", "idempotent-actix", "--features", features]), TEST_ONLY);
    let others = ["macros", "http", "client", "cli", "console", "test"];
    for package in others.map(|name| format!("idempotent-{name}")) {
        assert_without(&tree(&["-p", &package, "--all-features"]), TEST_ONLY);
    }
}

#[test]
fn only_the_tests_enable_the_internals() {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]).concat();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut enabled = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            // A store's tests depend on the store.
            if dependency["kind"] == "dev" && dependency["name"] == name {
                continue;
            }
            let features = dependency["features"].as_array().unwrap();
            if features.iter().any(|feature| feature == "internals") {
                enabled.push(name);
            }
        }
        for (feature, enables) in package["features"].as_object().unwrap() {
            assert!(
                feature == "internals" || !enables.to_string().contains("internals"),
                "the feature `{feature}` of {name} enables the internals"
            );
        }
    }
    enabled.sort_unstable();
    enabled.dedup();
    assert_eq!(enabled, ["fuzz-targets", "simulation", "test-support", "tests"]);
}
