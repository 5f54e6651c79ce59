//! The tables of `RESULTS.md`, to which long runs write.

use std::{env, fs, sync::Mutex};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/survival/RESULTS.md");

const HEAD: &str = "\
# Results

`tests/run kills` writes these tables, and `TRANSFER_KILLS=300 tests/run mariadb` the rows of
MariaDB.

";

const UNDER_LOAD: &str = "\
## Kills under load

Servers that are killed (`kill -9`) under load, with eight clients, repeatedly. Each transfer is
committed together with its idempotency record. The handlers of the *hostile* server also end their
transaction, ignore errors, and drop statements. *Interrupted* counts the kills during which at
least one request lost its response. The last three columns before the time must be 0.

";

const IN_TURN: &str = "\
## Kills in turn

A server that is killed (`kill -9`) at each message of a payment in turn, before the message is
forwarded and after it: those between client and server, server and bank, and server and database.
Then it is started again, and the request is sent again. The *second* attempts are killed after a
first one that was killed when the bank had made the charge. SQLite has no messages.

";

const CONSUMERS: &str = "\
## Consumers

Consumers of a Redis stream (`examples/consumer`) that are killed (`kill -9`) under load,
repeatedly; three run at a time. Each deposit is committed in Postgres together with its
idempotency record. The producer sends some messages twice. *Interrupted* counts the kills of a
consumer that had not acknowledged all the messages which it had received, and *left* these
messages; another consumer got them. *Applied*, *replayed* and *left for later* count the lines that
the consumers have written. The last four columns before the time must be 0.

";

const CLIENTS: &str = "\
## Clients

A client (the shop of `examples/chain`) that is killed (`kill -9`) at random, with a store of
pending operations. The servers are killed too, and a proxy in front of each loses, delays, repeats
and truncates messages. *Requests* are those that the proxies got. The last column before the time
must be 0.

";

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    UnderLoad,
    InTurn,
    Consumers,
    Clients,
}

/// The number of kills of a long run, whose results are written.
pub(crate) fn required_kills() -> Option<u64> {
    env::var("TRANSFER_KILLS").ok().map(|kills| kills.parse().expect("TRANSFER_KILLS is a number"))
}

pub(crate) fn is_long_run() -> bool {
    required_kills().is_some()
}

impl Table {
    const ALL: [(Self, &'static str, &'static [&'static str]); 4] = [
        (Self::UnderLoad, UNDER_LOAD, &["store", "claim", "handlers"]),
        (Self::InTurn, IN_TURN, &["store"]),
        (Self::Consumers, CONSUMERS, &["claim"]),
        (Self::Clients, CLIENTS, &["servers"]),
    ];

    /// The lines of the table in a text.
    fn lines(self, text: &str) -> Vec<String> {
        let (_, head, _) = Self::ALL[self as usize];
        let title = head.lines().next().unwrap();
        let section = text.lines().skip_while(|line| *line != title).skip(1);
        let section = section.take_while(|line| !line.starts_with("## "));
        section.filter(|line| line.starts_with('|')).map(str::to_owned).collect()
    }
}

/// Writes a row, which replaces an earlier one with the same first cells.
pub(crate) fn write(table: Table, combination: &[String], facts: &[(&str, String)]) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap();
    let before = fs::read_to_string(FILE).unwrap_or_default();
    let mut text = HEAD.to_owned();
    for (section, head, names) in Table::ALL {
        let mut lines = section.lines(&before);
        if section == table {
            let rows = lines.split_off(lines.len().min(2));
            lines = rows_with(rows, names, combination, facts);
        }
        if !lines.is_empty() {
            text += &format!("{head}{}\n\n", lines.join("\n"));
        }
    }
    fs::write(FILE, format!("{}\n", text.trim_end())).unwrap();
}

fn rows_with(
    mut rows: Vec<String>,
    names: &[&str],
    combination: &[String],
    facts: &[(&str, String)],
) -> Vec<String> {
    let names: Vec<_> = names.iter().copied().chain(facts.iter().map(|fact| fact.0)).collect();
    let combination = format!("| {} |", combination.join(" | "));
    let facts: Vec<_> = facts.iter().map(|fact| fact.1.as_str()).collect();
    rows.retain(|row| !row.starts_with(&combination));
    rows.push(format!("{combination} {} |", facts.join(" | ")));
    rows.sort();
    rows.insert(0, format!("|{}", "---|".repeat(names.len())));
    rows.insert(0, format!("| {} |", names.join(" | ")));
    rows
}
