//! The dependencies between modules: at the root of a crate, each module uses only those below it,
//! and nowhere do modules use each other in a cycle.

use std::collections::BTreeSet;

use crate::{
    layers::{
        ACTIX, CLI, CLIENT, CONSOLE, CORE, DYNAMODB, HTTP, MACROS, MYSQL, POSTGRES, REDIS, SQLITE,
        TEST,
    },
    sources::Sources,
};

/// The uses `(user, used)` among the children of a module. Uses of and by the module itself are not
/// included.
fn uses_among_siblings(sources: &Sources, parent: &[String]) -> BTreeSet<(String, String)> {
    let siblings = sources.children(parent);
    let sibling = |module: &[String]| {
        let inside = module.len() > parent.len() && module.starts_with(parent);
        inside.then(|| module[parent.len()].clone()).filter(|name| siblings.contains(name.as_str()))
    };
    let uses = sources.uses().into_iter();
    let uses = uses.filter_map(|(user, used)| Some((sibling(&user)?, sibling(&used)?)));
    uses.filter(|(user, used)| user != used).collect()
}

/// The uses that are part of a cycle or connect two cycles. Repeatedly removes uses whose user is
/// not used, or whose used module uses nothing.
fn in_cycles(mut uses: BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    loop {
        let users: BTreeSet<_> = uses.iter().map(|(user, _)| user.clone()).collect();
        let used: BTreeSet<_> = uses.iter().map(|(_, used)| used.clone()).collect();
        let left =
            uses.iter().filter(|(user, is)| users.contains(is) && used.contains(user)).cloned();
        let left: BTreeSet<_> = left.collect();
        if left.len() == uses.len() {
            return left;
        }
        uses = left;
    }
}

fn assert_layered(name: &str, layers: &[&str], at_least: usize) {
    let sources = Sources::of(name);
    let undeclared: Vec<_> =
        sources.children(&[]).into_iter().filter(|module| !layers.contains(module)).collect();
    assert!(
        undeclared.is_empty(),
        "{name}: add these modules to the list of layers: {undeclared:?}"
    );
    let gone: Vec<_> =
        layers.iter().filter(|layer| !sources.children(&[]).contains(*layer)).collect();
    assert!(gone.is_empty(), "{name}: no such modules: {gone:?}");

    let place = |module: &str| layers.iter().position(|layer| *layer == module).unwrap();
    let uses = uses_among_siblings(&sources, &[]);
    assert!(uses.len() >= at_least, "{name}: only {} uses were found", uses.len());
    let up = uses.iter().filter(|(user, used)| place(user) >= place(used));
    let up: BTreeSet<_> = up.collect();
    assert!(up.is_empty(), "{name}: these modules use modules above them: {up:?}");
}

/// Asserts that no module below this one of a crate uses a module that contains it.
fn assert_none_uses_its_parent(name: &str, below: &str) {
    let uses = Sources::of(name).uses().into_iter();
    let up: BTreeSet<_> = uses
        .filter(|(user, used)| user != used && user.starts_with(used))
        .map(|(user, _)| user.join("::"))
        .filter(|user| user.starts_with(below) && user != "runtime::internals")
        .collect();
    assert!(up.is_empty(), "{name}: these modules use those that contain them: {up:?}");
}

fn assert_no_cycles(name: &str) {
    let sources = Sources::of(name);
    let mut cycles = BTreeSet::new();
    for parent in sources.modules() {
        let uses = in_cycles(uses_among_siblings(&sources, parent));
        if !uses.is_empty() {
            let parent = [&[name.to_owned()], parent.as_slice()].concat().join("::");
            println!("{parent}: {uses:#?}");
            cycles.insert(parent);
        }
    }
    assert!(cycles.is_empty(), "{name}: these modules contain cycles: {cycles:?}");
}

#[test]
fn cycles_are_found() {
    let uses = |uses: &[(&str, &str)]| {
        uses.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    let cycle: BTreeSet<_> = uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
    assert_eq!(in_cycles(cycle), uses(&[("a", "b"), ("b", "c"), ("c", "a")]));
    assert_eq!(in_cycles(uses(&[("a", "b"), ("b", "c"), ("a", "c")])), BTreeSet::new());
}

#[test]
fn modules_at_the_root_use_only_those_below() {
    for (name, layers, at_least) in [
        ("idempotent-core", CORE, 40),
        ("stores/sqlite", SQLITE, 15),
        ("stores/postgres", POSTGRES, 25),
        ("stores/mysql", MYSQL, 20),
        ("stores/redis", REDIS, 20),
        ("stores/dynamodb", DYNAMODB, 25),
        ("idempotent-http", HTTP, 1),
        ("idempotent-actix", ACTIX, 20),
        ("idempotent-client", CLIENT, 15),
        ("idempotent-cli", CLI, 8),
        ("idempotent-console", CONSOLE, 15),
        ("idempotent-test", TEST, 10),
        ("idempotent-macros", MACROS, 8),
    ] {
        assert_layered(name, layers, at_least);
    }
}

#[test]
fn modules_of_the_runtime_and_of_the_stores_use_none_that_contains_them() {
    assert_none_uses_its_parent("idempotent-core", "runtime");
    for store in ["sqlite", "postgres", "mysql", "redis", "dynamodb"] {
        assert_none_uses_its_parent(&format!("stores/{store}"), "");
    }
}

#[test]
fn modules_have_no_cycles() {
    for name in [
        "idempotent-core",
        "stores/sql",
        "stores/sqlite",
        "stores/postgres",
        "stores/mysql",
        "stores/redis",
        "stores/dynamodb",
        "idempotent-http",
        "idempotent-actix",
        "idempotent-client",
        "idempotent-cli",
        "idempotent-console",
        "idempotent-test",
        "idempotent-macros",
    ] {
        assert_no_cycles(name);
    }
}

/// The runtime may use the trait `Store`, but no particular store; examples and unit tests may.
#[test]
fn the_runtime_names_no_store() {
    let mut runtime = String::new();
    let source = crate::root().join("idempotent-core/src");
    let files = crate::text::files_in("idempotent-core/src/runtime");
    let files = files.into_iter().filter(|file| !file.ends_with("tests.rs"));
    for file in [source.join("runtime.rs")].into_iter().chain(files) {
        let text = std::fs::read_to_string(file).unwrap();
        runtime.extend(text.split_inclusive('\n').filter(|line| !line.trim().starts_with("//")));
    }
    assert!(runtime.contains("store.claim"), "this is not the source of the runtime");
    for store in [
        "MemoryStore",
        "SqliteStore",
        "PostgresStore",
        "RedisStore",
        "DynamoDbStore",
        "sqlx",
        "redis",
    ] {
        assert!(!runtime.contains(store), "the runtime names {store}");
    }
}

/// So that no source file belongs to two modules or to two crates.
#[test]
fn only_excepted_files_use_path_attributes() {
    for (path, text) in crate::text::files() {
        if path.ends_with(".rs") && !path.starts_with("tests/architecture") {
            let with_path = text.lines().find(|line| line.trim_start().starts_with("#[path"));
            let is_excepted = PATHS.iter().any(|(excepted, _)| *excepted == path);
            assert!(with_path.is_none() || is_excepted, "{path}: {with_path:?}");
        }
    }
}

/// Files that may contain a `#[path]`, each with the reason.
const PATHS: &[(&str, &str)] = &[
    ("idempotent-actix/src/lib.rs", "the file of the module `__private` is `private.rs`"),
    ("tests/survival/hostile_server.rs", "its accounts are those of the payments server"),
    ("fuzz/src/duration.rs", "a crate of procedural macros exports no function"),
];
