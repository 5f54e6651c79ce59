//! The end of a claim in a transaction that a handler has used.

/// Wraps a note or the end of a claim in a transaction that a handler has used. The statement waits
/// at most a second for the record and restores the previous `lock_timeout` for what follows, such
/// as deferred constraints. It returns one row: `ours`, whether the open transaction is the one
/// with the token `{token}` rather than one that the handler has begun since; `changed`, whether a
/// record was changed; the token, which proves that the response belongs to this statement; and
/// whether the session has temporary tables.
const IN_TRANSACTION: [&str; 3] = [
    "WITH bound AS MATERIALIZED (SELECT current_setting('lock_timeout') AS was, \
     set_config('lock_timeout', '1s', true) AS now, \
     coalesce(current_setting('idempotent.transaction', true) = ({token})::text, false) AS ours), \
     changed AS (",
    "\n  AND (SELECT ours AND now IS NOT NULL FROM bound)",
    ") SELECT set_config('lock_timeout', was, true), ours, changed, ({token})::bigint AS token, \
     pg_my_temp_schema()::bigint AS temporary \
     FROM bound CROSS JOIN (SELECT count(*) > 0 AS changed FROM changed) AS counted",
];

/// Wraps a statement in [`IN_TRANSACTION`]. The token is one more parameter, after those of the
/// statement.
pub(super) fn in_transaction(text: &str) -> String {
    let parameters = text.split('$').filter_map(|rest| {
        let end = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse::<u32>().ok()
    });
    let token = format!("${}", parameters.max().unwrap_or_default() + 1);
    let [before, conditions, after] = IN_TRANSACTION.map(|part| part.replace("{token}", &token));
    let text = text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    [before, text.replace("{bounded}", &conditions), after].concat()
}
