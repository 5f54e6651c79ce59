//! The tables of results, to which long runs write.

use std::{env, fs, sync::Mutex};

/// The number of kills of a long run, which writes its results.
pub(crate) fn required_kills() -> Option<u64> {
    env::var("TRANSFER_KILLS").ok().map(|kills| kills.parse().expect("TRANSFER_KILLS is a number"))
}

/// A file with a table of results.
pub(crate) struct Results {
    file: &'static str,
    head: &'static str,
    /// The names of the first cells, which identify a row.
    keys: &'static [&'static str],
}

pub(crate) const TRANSFERS: Results = Results {
    file: concat!(env!("CARGO_MANIFEST_DIR"), "/survival/RESULTS.md"),
    head: "\
# Results

Servers that are killed (`kill -9`) under load, with eight clients, repeatedly:
`tests/run kills` writes this table. Each transfer is committed together with
its idempotency record. The handlers of the *hostile* server also end their transaction, ignore
errors, and drop statements. *Interrupted* counts the kills during which at least one request lost
its response. The last three columns before the time must be 0.

",
    keys: &["store", "claim", "handlers"],
};

pub(crate) const CONSUMERS: Results = Results {
    file: concat!(env!("CARGO_MANIFEST_DIR"), "/survival/CONSUMERS.md"),
    head: "\
# Results

Consumers of a Redis stream (`examples/consumer`) that are killed (`kill -9`) under load,
repeatedly; three run at a time. `tests/run kills` writes this table. Each deposit is committed in
Postgres together with its idempotency record. The producer sends some messages twice. *Interrupted*
counts the kills of a consumer that had not acknowledged all the messages which it had received, and
*left* these messages; another consumer got them. *Applied*, *replayed* and *left for later* count
the lines that the consumers have written. The last four columns before the time must be 0.

",
    keys: &["claim"],
};

impl Results {
    /// Writes a row, which replaces an earlier one with the same first cells.
    pub(crate) fn write(&self, combination: &[String], facts: &[(&str, String)]) {
        static WRITING: Mutex<()> = Mutex::new(());
        let _writing = WRITING.lock().unwrap();
        let Self { file, head, keys } = self;
        let names = keys.iter().copied().chain(facts.iter().map(|fact| fact.0));
        let names: Vec<_> = names.collect();
        let combination = format!("| {} |", combination.join(" | "));
        let facts: Vec<_> = facts.iter().map(|fact| fact.1.as_str()).collect();
        let before = fs::read_to_string(file).unwrap_or_default();
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
        fs::write(file, format!("{head}{table}")).unwrap();
    }
}
