//! The rows of the table: a workload, the layer, and the contestants that the layer is compared
//! with.

use std::time::Duration;

use crate::{environment::StoreKind, load::KeyPattern};

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) store: StoreKind,
    pub(crate) pattern: KeyPattern,
    /// The kinds of server: the layer, then its floor, then others.
    pub(crate) contestants: &'static [&'static str],
    /// A description of the floor.
    pub(crate) floor: &'static str,
    /// The share of the floor's throughput that is the goal.
    pub(crate) goal: Option<f64>,
    /// The shortest time to warm up.
    pub(crate) settles_after: Duration,
    /// What a reader has to know to interpret the row.
    pub(crate) remark: Option<&'static str>,
}

/// Replays of many keys.
const KEYS: KeyPattern = KeyPattern::Replays(1000);
/// Replays of one key.
const HOT: KeyPattern = KeyPattern::Replays(1);

const FIRST: &[&str] = &["layer", "floor", "bare"];
/// `layer-alone` executes each claim and each completion alone, without group commit.
const FIRST_SQL: &[&str] = &["layer", "floor", "layer-alone", "bare"];
const CLAIM_TRANSACTION: &[&str] = &["layer-transaction", "floor-effect", "bare"];
const CLAIM_LEASE: &[&str] = &["layer-lease", "floor-effect", "bare"];
const STEP: &[&str] = &["layer-step", "floor-step", "layer"];
const ONE_COMMIT: &str = "the handler's own transaction, and no idempotency";
const REPLAYS: &[&str] = &["layer", "floor-read", "bare"];
const REPLAYS_BATCHED: &[&str] = &["layer", "floor-read", "layer-alone", "bare"];

const fn row(
    name: &'static str,
    (store, pattern): (StoreKind, KeyPattern),
    contestants: &'static [&'static str],
    floor: &'static str,
    goal: Option<f64>,
) -> Row {
    let (settles_after, remark) = (Duration::ZERO, None);
    Row { name, store, pattern, contestants, floor, goal, settles_after, remark }
}

/// Every row.
pub(crate) const ROWS: &[Row] = &[
    Row {
        remark: Some(
            "No record expires during a run, so that the heap only grows: the cost of a request \
             includes memory that the kernel has to provide.",
        ),
        ..row(
            "memory/first",
            (StoreKind::Memory, KeyPattern::Fresh),
            &["layer", "bare"],
            "the bare handler",
            Some(0.72),
        )
    },
    Row {
        settles_after: Duration::from_secs(3),
        remark: Some(
            "Records expire after 1 s and are purged every second, as many as arrive; each run \
             begins after at least 3 s to warm up. It shows the cost of a request, with the purge, \
             in a process that has run for longer than its ttl.",
        ),
        ..row(
            "memory/steady",
            (StoreKind::Memory, KeyPattern::Fresh),
            &["layer-steady", "bare"],
            "the bare handler",
            None,
        )
    },
    row(
        "memory/replay",
        (StoreKind::Memory, KEYS),
        REPLAYS,
        "one lookup in a locked map",
        Some(0.85),
    ),
    row("memory/hot", (StoreKind::Memory, HOT), REPLAYS, "one lookup in a locked map", Some(0.85)),
    row(
        "redis/first",
        (StoreKind::Redis, KeyPattern::Fresh),
        FIRST,
        "`SET NX GET PX`, then `SET`",
        Some(0.80),
    ),
    row(
        "redis/step",
        (StoreKind::Redis, KeyPattern::Fresh),
        STEP,
        "`SET NX GET PX`, then two `SET`",
        None,
    ),
    row("redis/replay", (StoreKind::Redis, KEYS), REPLAYS, "one `GET`", Some(0.88)),
    row("redis/hot", (StoreKind::Redis, HOT), REPLAYS, "one `GET`", Some(0.85)),
    row(
        "postgres/first",
        (StoreKind::Postgres, KeyPattern::Fresh),
        FIRST_SQL,
        "`INSERT`, then `UPDATE`, each committed",
        Some(2.20),
    ),
    row(
        "postgres/step",
        (StoreKind::Postgres, KeyPattern::Fresh),
        STEP,
        "`INSERT`, then two `UPDATE`, each committed",
        None,
    ),
    row(
        "postgres/replay",
        (StoreKind::Postgres, KEYS),
        REPLAYS_BATCHED,
        "one `SELECT`",
        Some(1.10),
    ),
    row("postgres/hot", (StoreKind::Postgres, HOT), REPLAYS_BATCHED, "one `SELECT`", Some(1.10)),
    row(
        "postgres/transaction",
        (StoreKind::Postgres, KeyPattern::Fresh),
        CLAIM_TRANSACTION,
        ONE_COMMIT,
        Some(0.58),
    ),
    row(
        "postgres/leased-transaction",
        (StoreKind::Postgres, KeyPattern::Fresh),
        CLAIM_LEASE,
        ONE_COMMIT,
        None,
    ),
    row(
        "sqlite/first",
        (StoreKind::Sqlite, KeyPattern::Fresh),
        FIRST_SQL,
        "`INSERT`, then `UPDATE`, each committed",
        Some(4.50),
    ),
    row(
        "sqlite/step",
        (StoreKind::Sqlite, KeyPattern::Fresh),
        STEP,
        "`INSERT`, then two `UPDATE`, each committed",
        None,
    ),
    row("sqlite/replay", (StoreKind::Sqlite, KEYS), REPLAYS, "one `SELECT`", Some(0.95)),
    row("sqlite/hot", (StoreKind::Sqlite, HOT), REPLAYS, "one `SELECT`", Some(0.90)),
    row(
        "sqlite/transaction",
        (StoreKind::Sqlite, KeyPattern::Fresh),
        CLAIM_TRANSACTION,
        ONE_COMMIT,
        Some(0.85),
    ),
    row(
        "sqlite/leased-transaction",
        (StoreKind::Sqlite, KeyPattern::Fresh),
        CLAIM_LEASE,
        ONE_COMMIT,
        None,
    ),
    #[cfg(feature = "mysql")]
    row(
        "mysql/first",
        (StoreKind::MySql, KeyPattern::Fresh),
        FIRST_SQL,
        "`INSERT`, then `UPDATE`, each committed",
        Some(1.50),
    ),
    #[cfg(feature = "mysql")]
    row(
        "mysql/step",
        (StoreKind::MySql, KeyPattern::Fresh),
        STEP,
        "`INSERT`, then two `UPDATE`, each committed",
        None,
    ),
    #[cfg(feature = "mysql")]
    row("mysql/replay", (StoreKind::MySql, KEYS), REPLAYS_BATCHED, "one `SELECT`", None),
    #[cfg(feature = "mysql")]
    row("mysql/hot", (StoreKind::MySql, HOT), REPLAYS_BATCHED, "one `SELECT`", None),
    #[cfg(feature = "mysql")]
    row(
        "mysql/transaction",
        (StoreKind::MySql, KeyPattern::Fresh),
        CLAIM_TRANSACTION,
        ONE_COMMIT,
        None,
    ),
    #[cfg(feature = "mysql")]
    row(
        "mysql/leased-transaction",
        (StoreKind::MySql, KeyPattern::Fresh),
        CLAIM_LEASE,
        ONE_COMMIT,
        None,
    ),
];

/// The rows whose name contains one of `words`, or all rows if `words` is empty.
pub(crate) fn select(words: &[String]) -> Vec<Row> {
    let is_chosen =
        |row: &&Row| words.is_empty() || words.iter().any(|word| row.name.contains(word.as_str()));
    let rows: Vec<_> = ROWS.iter().filter(is_chosen).copied().collect();
    assert!(
        !rows.is_empty(),
        "no row's name contains any of {words:?}; the rows are {:?}",
        ROWS.iter().map(|row| row.name).collect::<Vec<_>>()
    );
    rows
}
