//! The guide on servers has a verdict for each, and names tests that exist.

use std::fs;

use crate::root;

const GUIDE: &str = "idempotent-actix/src/guide/servers.md";

/// How a test of a store is written: the test binary, and the path of the test.
struct NamedTest<'a> {
    store: &'a str,
    path: &'a str,
}

impl<'a> NamedTest<'a> {
    fn parse(code: &'a str) -> Option<Self> {
        let (store, path) = code.split_once(' ')?;
        let names = || path.split("::");
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        (is_name(store) && names().count() > 1 && names().all(is_name))
            .then_some(Self { store, path })
    }

    fn exists(&self) -> bool {
        let (module, name) = self.path.rsplit_once("::").unwrap();
        let file = format!("stores/{}/tests/{}.rs", self.store, module.replace("::", "/"));
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        let function = format!("fn {name}(");
        let at = source.find(&function);
        // The attribute of a test is on one of the lines before it.
        at.is_some_and(|at| {
            source[..at].lines().rev().take(4).any(|line| line.starts_with("#[tokio::test"))
        })
    }
}

/// The tests that a text names.
fn tests(text: &str) -> Vec<NamedTest<'_>> {
    text.split('`').skip(1).step_by(2).filter_map(NamedTest::parse).collect()
}

/// The rows of a table with these columns, as their cells.
fn rows<'a>(guide: &'a str, columns: &str) -> Vec<Vec<&'a str>> {
    let mut rows = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if line.starts_with(columns) {
            let table = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
            rows.extend(
                table.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()),
            );
        }
    }
    rows
}

fn guide() -> String {
    fs::read_to_string(root().join(GUIDE)).unwrap()
}

#[test]
fn every_server_has_one_of_three_verdicts_with_what_it_rests_on() {
    let guide = guide();
    let rows =
        [rows(&guide, "| server | verdict | why |"), rows(&guide, "| pooler | verdict | why |")];
    let rows = rows.concat();
    assert!(rows.len() >= 30, "only {} servers", rows.len());
    for row in rows {
        let [server, verdict, why] = row[..] else { panic!("{row:?}") };
        match verdict {
            "tested" => assert!(!tests(why).is_empty(), "{server}: names no test"),
            "documented" => assert!(why.contains("](https://"), "{server}: names no source"),
            "unknown" => assert!(!why.is_empty(), "{server}: says nothing"),
            other => panic!("{server}: {other} is no verdict"),
        }
    }
}

#[test]
fn everything_that_is_recognized_has_a_test() {
    let guide = guide();
    let rows = rows(&guide, "| server | when | what happens | test |");
    assert!(rows.len() >= 10, "only {} rows", rows.len());
    for row in rows {
        let [server, _, _, test] = row[..] else { panic!("{row:?}") };
        assert!(!tests(test).is_empty(), "{server}: names no test");
    }
}

#[test]
fn every_test_that_the_guide_names_exists() {
    let guide = guide();
    let tests = tests(&guide);
    assert!(tests.len() >= 20, "only {} tests are named", tests.len());
    for test in tests {
        assert!(test.exists(), "there is no test `{} {}`", test.store, test.path);
    }
}
