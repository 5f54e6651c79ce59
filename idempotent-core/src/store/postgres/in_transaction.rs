//! The end of a claim in a transaction that a handler has used.

/// Wraps the end of a claim in a transaction that a handler has used. The statement waits at most a
/// second for the record and restores the previous `lock_timeout` for what follows, such as
/// deferred constraints. It returns one row: `ours`, whether the open transaction is the one with
/// the token `$4` rather than one that the handler has begun since; `changed`, whether a record was
/// changed; the token, which proves that the response belongs to this statement; and whether the
/// session has temporary tables.
const IN_TRANSACTION: [&str; 3] = [
    "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS was, \
     set_config('lock_timeout', '1s', true) AS now, \
     coalesce(current_setting('idempotent.transaction', true) = ($4)::text, false) AS ours), \
     changed AS (",
    "\n  AND (SELECT ours AND now IS NOT NULL FROM bound)",
    ") SELECT set_config('lock_timeout', was, true), ours, changed, ($4)::bigint AS token, \
     pg_my_temp_schema()::bigint AS temporary \
     FROM bound CROSS JOIN (SELECT count(*) > 0 AS changed FROM changed) AS counted",
];

/// Wraps a statement in [`IN_TRANSACTION`].
pub(super) fn in_transaction(text: &str) -> String {
    let [before, conditions, after] = IN_TRANSACTION;
    let text = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    [before, &text.replace("{bounded}", conditions), after].concat()
}
