//! The times in the rows of the SQL stores.

/// The history of a record with all times shifted, in SQLite, which parses no hexadecimal numbers.
const HISTORY_IN_SQLITE: &str = "(
    SELECT coalesce(group_concat(letter || printf('%011x', at + {by}), '' ORDER BY n), '')
    FROM (
        SELECT n.value AS n, substr(history, 12 * n.value + 1, 1) AS letter, (
            SELECT sum((instr('0123456789abcdef',
                              substr(history, 12 * n.value + 2 + digit.value, 1)) - 1)
                       << (4 * (10 - digit.value)))
            FROM json_each('[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]') AS digit
        ) AS at
        FROM json_each('[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]') AS n
        WHERE 12 * n.value < length(history)
    ))";

/// The same in Postgres.
const HISTORY_IN_POSTGRES: &str = "(
    SELECT coalesce(string_agg(
        substr(history, 12 * n + 1, 1) || lpad(to_hex(
            ('x' || lpad(substr(history, 12 * n + 2, 11), 16, '0'))::bit(64)::bigint + {by}
        ), 11, '0'), '' ORDER BY n), '')
    FROM generate_series(0, length(history) / 12 - 1) AS n)";

/// The same in MySQL.
const HISTORY_IN_MYSQL: &str = "(
    SELECT COALESCE(GROUP_CONCAT(CONCAT(
        SUBSTR(history, 12 * n + 1, 1),
        LPAD(LOWER(HEX(
            CAST(CONV(SUBSTR(history, 12 * n + 2, 11), 16, 10) AS SIGNED) + {by}
        )), 11, '0')
    ) ORDER BY n SEPARATOR ''), '')
    FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
          UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8
          UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12
          UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) AS entries
    WHERE 12 * n < LENGTH(history))";

/// Assigns shifted times to the columns of a table in SQLite. The lease of an abandoned record
/// ended in 1970 (0), and is not shifted.
pub fn shifted_in_sqlite(by: i64) -> String {
    shifted(by, HISTORY_IN_SQLITE)
}

/// The same in Postgres.
pub fn shifted_in_postgres(by: i64) -> String {
    shifted(by, HISTORY_IN_POSTGRES)
}

/// The same in MySQL.
pub fn shifted_in_mysql(by: i64) -> String {
    shifted(by, HISTORY_IN_MYSQL)
}

fn shifted(by: i64, history: &str) -> String {
    let lease = "lease_until = CASE lease_until WHEN 0 THEN 0 ELSE lease_until + {by} END";
    let times = ["first_seen", "expires_at", "completed_at", "watch"];
    let times = times.map(|time| format!(", {time} = {time} + {{by}}")).concat();
    format!("{lease}{times}, history = {history}").replace("{by}", &format!("({by})"))
}

/// The condition that each row fulfils: it is watched if its record is held or can become held, and
/// not if it is completed. `row` precedes the name of each column.
pub(super) fn is_watched_rightly(row: &str) -> String {
    let condition = "CASE WHEN {row}state = 2 THEN {row}watch IS NULL \
        WHEN {row}state = 3 OR {row}abandoned = 1 THEN coalesce({row}watch, -1) = {row}first_seen \
        ELSE {row}watch IS NULL OR {row}watch = {row}first_seen END";
    condition.replace("{row}", row)
}
