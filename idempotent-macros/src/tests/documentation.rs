//! The list of keys is complete where it is used: in the golden `every_key`, and in the table of
//! both documentations, which `UPDATE_EXPECT=1 cargo test -p idempotent-macros` rewrites.

use std::{fmt::Write, fs, path::Path};

use crate::parse::entry::{AttributeKey, Row};
use crate::parse::keys::KEYS;

const HEADING: &str = "| key | values | default | meaning |\n|---|---|---|---|\n";

fn table() -> String {
    let mut table = HEADING.to_owned();
    for AttributeKey { name, row: Row { values, default, meaning }, .. } in KEYS {
        let meaning: Vec<_> = meaning.iter().map(|line| line.trim()).collect();
        let _ = writeln!(table, "| `{name}` | {values} | {default} | {} |", meaning.join(" "));
    }
    table
}

#[test]
fn both_documentations_have_the_table_of_the_keys() {
    for file in ["src/attribute.md", "../idempotent-actix/src/guide/attribute.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(HEADING).unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        let expected = format!("{before}{}\n{after}", table());
        expect_test::expect_file![path].assert_eq(&expected);
    }
}

#[test]
fn the_golden_every_key_has_every_key() {
    // These exclude each other, and most fingerprints.
    let golden = [
        include_str!("../../golden/every_key.rs"),
        include_str!("../../golden/ignored_members.rs"),
        include_str!("../../golden/only_members.rs"),
    ];
    for key in KEYS {
        let found = golden.iter().any(|golden| golden.contains(&format!(" {} = ", key.name)));
        assert!(found, "`{}` is missing in the golden files", key.name);
    }
}
