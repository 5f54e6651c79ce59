//! The guides name every crate that their code needs.

use std::{collections::BTreeSet, fs};

use crate::root;

/// The guides of `idempotent-actix` are in this folder.
const GUIDES: &str = "idempotent-actix/src/guide";

/// What code can use without `cargo add`.
const PROVIDED: [&str; 5] = ["alloc", "core", "crate", "self", "std"];

/// The crates that the code also uses by a path, without an import.
const BY_PATH: [&str; 7] = ["serde", "serde_json", "sqlx", "thiserror", "tokio", "tracing", "uuid"];

/// The guides and the READMEs with their texts.
fn pages() -> Vec<(String, String)> {
    let guides = fs::read_dir(root().join(GUIDES)).unwrap();
    let guides = guides.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let guides = guides.filter(|name| name.ends_with(".md")).map(|name| format!("{GUIDES}/{name}"));
    let others = ["README.md", "idempotent-client/README.md", "idempotent-client/src/guide.md"];
    let pages = guides.chain(others.map(str::to_owned));
    pages.map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// The crates that the `cargo add` lines of a page name.
fn added(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("cargo add "));
    let lines = lines.map(|line| line.replace("--dev ", ""));
    let lines: Vec<_> = lines.collect();
    let crates = lines.iter().flat_map(|line| line.split(" --").next().unwrap().split(' '));
    crates.map(|name| name.split('@').next().unwrap().replace('-', "_")).collect()
}

/// The crates that the Rust code of a page uses.
fn used(page: &str) -> BTreeSet<String> {
    let (mut is_rust, mut used) = (false, BTreeSet::new());
    for line in page.lines() {
        if let Some(info) = line.strip_prefix("```") {
            is_rust = !is_rust && ["rust", "rust,no_run", "no_run"].contains(&info);
        } else if is_rust {
            let code = line.trim_start_matches("# ");
            let import = code.strip_prefix("use ");
            used.extend(import.and_then(|import| import.split([':', ';', ' ']).next()));
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let heads = words.filter_map(|word| Some(word.split_once("::")?.0));
            used.extend(heads.filter(|head| BY_PATH.contains(head)));
        }
    }
    used.retain(|name| !PROVIDED.contains(name));
    used.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_page_with_code_names_the_crates_to_add() {
    let mut checked = 0;
    for (path, text) in pages() {
        let (used, added) = (used(&text), added(&text));
        let missing: Vec<_> = used.difference(&added).collect();
        assert!(missing.is_empty(), "{path}: no `cargo add` names {missing:?}");
        checked += usize::from(!used.is_empty());
    }
    assert!(checked >= 18, "only {checked} pages have code");
}
