//! The table of `RESULTS.md`, to which a long run writes.

use std::{fs, sync::Mutex};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/survival/RESULTS.md");

const HEAD: &str = "\
# Results

Servers that are killed (`kill -9`) under load, with eight clients, repeatedly:
`tests/run kills` writes this table. Each transfer is committed together with
its idempotency record. The handlers of the *hostile* server also end their transaction, ignore
errors, and drop statements. *Interrupted* counts the kills during which at least one request lost
its response. The last three columns before the time must be 0.

";

/// Writes a row, which replaces an earlier one with the same first cells.
pub(super) fn write(combination: &[String; 3], facts: &[(&str, String)]) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap();
    let names = ["store", "claim", "handlers"].into_iter().chain(facts.iter().map(|fact| fact.0));
    let names: Vec<_> = names.collect();
    let combination = format!("| {} |", combination.join(" | "));
    let facts: Vec<_> = facts.iter().map(|fact| fact.1.as_str()).collect();
    let before = fs::read_to_string(FILE).unwrap_or_default();
    let others = before.lines().filter(|line| line.starts_with("| `"));
    let mut rows: Vec<_> =
        others.filter(|line| !line.starts_with(&combination)).map(str::to_owned).collect();
    rows.push(format!("{combination} {} |", facts.join(" | ")));
    rows.sort();
    let table = format!(
        "| {} |\n|{}\n{}\n",
        names.join(" | "),
        "---|".repeat(names.len()),
        rows.join("\n")
    );
    fs::write(FILE, format!("{HEAD}{table}")).unwrap();
}
