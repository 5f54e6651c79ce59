//! The end of a claim in a transaction that a handler has used.
//!
//! Each statement here returns one row: `ours`, whether the open transaction is the one that the
//! store has begun, rather than one that the handler has begun since; `changed`, whether a record
//! was changed; the token, which proves that the response belongs to this statement; and whether
//! the session has temporary tables. It waits at most a second for the record, and restores the
//! previous `lock_timeout` for what follows, such as deferred constraints.

use crate::sql::mark::mark;

/// Wraps a note or the end of a claim.
const UPDATE: [&str; 3] = [
    "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS was, \
     set_config('lock_timeout', '1s', true) AS now, \
     coalesce(current_setting('idempotent.transaction', true) = '{mark}', false) AS ours), \
     changed AS (",
    "\n  AND (SELECT ours AND now IS NOT NULL FROM bound)",
    ") SELECT set_config('lock_timeout', was, true), ours, changed, ({token})::bigint AS token, \
     pg_my_temp_schema()::bigint AS temporary \
     FROM bound CROSS JOIN (SELECT count(*) > 0 AS changed FROM changed) AS counted",
];

/// Conditions of an insert, and what it returns. It takes less of the server's time than a wrapped
/// statement, but returns no row if it inserts none. A `CASE` is evaluated in order.
const INSERT: [&str; 2] = [
    "\n  AND CASE WHEN current_setting('idempotent.transaction', true) IS DISTINCT FROM '{mark}' \
     THEN false \
     WHEN set_config('idempotent.lock_timeout', current_setting('lock_timeout'), true) IS NULL \
     THEN false \
     ELSE set_config('lock_timeout', '1s', true) IS NOT NULL END",
    "RETURNING set_config('lock_timeout', current_setting('idempotent.lock_timeout'), true), \
     true AS ours, true AS changed, ({token})::bigint AS token, \
     pg_my_temp_schema()::bigint AS temporary",
];

/// Wraps a statement that changes a record in [`UPDATE`]. The token is one more parameter, after
/// those of the statement.
pub(crate) fn updating(text: &str) -> String {
    let [before, conditions, after] = UPDATE.map(|part| filled(part, text));
    [before, without_comments(text).replace("{bounded}", &conditions), after].concat()
}

/// Adds [`INSERT`] to a statement that inserts a record. The token is one more parameter, after
/// those of the statement.
pub(crate) fn inserting(text: &str) -> String {
    let [conditions, returning] = INSERT.map(|part| filled(part, text));
    let text = without_comments(text).replace("{bounded}", &conditions);
    text.replace("RETURNING 1", &returning)
}

pub(crate) fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

/// Fills in the mark of the store's transactions, and the number of the token's parameter.
fn filled(part: &str, text: &str) -> String {
    let parameters = text.split('$').filter_map(|rest| {
        let end = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse::<u32>().ok()
    });
    let token = format!("${}", parameters.max().unwrap_or_default() + 1);
    part.replace("{token}", &token).replace("{mark}", mark())
}
