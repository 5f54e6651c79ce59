//! What is compared: each row is a piece of work, the layer, and what it is measured against.

use crate::{bed::Kept, load::Work};

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kept: Kept,
    pub(crate) work: Work,
    /// The layer, then its floor, then others.
    pub(crate) contestants: &'static [&'static str],
    /// What the floor does.
    pub(crate) floor: &'static str,
    /// The share of the floor's throughput that the layer is to reach.
    pub(crate) goal: Option<f64>,
}

/// Keys that are replayed.
const KEYS: Work = Work::Replays(1000);
/// One hot key.
const HOT: Work = Work::Replays(1);

const CLAIMS: &[&str] = &["layer", "floor", "bare"];
const EFFECTS: &[&str] = &["layer-transaction", "floor-effect", "bare"];
const LEASED: &[&str] = &["layer-lease", "floor-effect", "bare"];
const ONE_COMMIT: &str = "the handler's own transaction, and no idempotency";
const READS: &[&str] = &["layer", "floor-read", "bare"];

const fn row(
    name: &'static str,
    (kept, work): (Kept, Work),
    contestants: &'static [&'static str],
    floor: &'static str,
    goal: Option<f64>,
) -> Row {
    Row { name, kept, work, contestants, floor, goal }
}

/// Every row.
pub(crate) const ROWS: &[Row] = &[
    row("memory/first", (Kept::Memory, Work::Fresh), &["layer", "bare"], "the bare handler", Some(0.90)),
    row("memory/replay", (Kept::Memory, KEYS), READS, "one look into a locked map", Some(0.95)),
    row("memory/hot", (Kept::Memory, HOT), READS, "one look into a locked map", Some(0.90)),
    row("redis/first", (Kept::Redis, Work::Fresh), CLAIMS, "`SET NX GET PX`, then `SET`", Some(0.95)),
    row("redis/replay", (Kept::Redis, KEYS), READS, "one `GET`", Some(0.95)),
    row("redis/hot", (Kept::Redis, HOT), READS, "one `GET`", Some(0.90)),
    row("postgres/first", (Kept::Postgres, Work::Fresh), CLAIMS, "`INSERT`, then `UPDATE`, each committed", Some(0.95)),
    row("postgres/replay", (Kept::Postgres, KEYS), READS, "one `SELECT`", Some(0.95)),
    row("postgres/hot", (Kept::Postgres, HOT), READS, "one `SELECT`", Some(0.90)),
    row("postgres/transaction", (Kept::Postgres, Work::Fresh), EFFECTS, ONE_COMMIT, Some(0.90)),
    row("postgres/leased-transaction", (Kept::Postgres, Work::Fresh), LEASED, ONE_COMMIT, None),
    row("sqlite/first", (Kept::Sqlite, Work::Fresh), CLAIMS, "`INSERT`, then `UPDATE`, each committed", None),
    row("sqlite/replay", (Kept::Sqlite, KEYS), READS, "one `SELECT`", Some(0.95)),
    row("sqlite/hot", (Kept::Sqlite, HOT), READS, "one `SELECT`", Some(0.90)),
    row("sqlite/transaction", (Kept::Sqlite, Work::Fresh), EFFECTS, ONE_COMMIT, Some(0.85)),
    row("sqlite/leased-transaction", (Kept::Sqlite, Work::Fresh), LEASED, ONE_COMMIT, None),
];

/// The rows whose name contains one of these words; all where there are none.
pub(crate) fn chosen<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Row> {
    let words: Vec<_> = words.collect();
    let is_chosen = |row: &&Row| words.is_empty() || words.iter().any(|word| row.name.contains(word));
    let rows: Vec<_> = ROWS.iter().filter(is_chosen).copied().collect();
    assert!(
        !rows.is_empty(),
        "no row is called {words:?}; there are {:?}",
        ROWS.iter().map(|row| row.name).collect::<Vec<_>>()
    );
    rows
}
