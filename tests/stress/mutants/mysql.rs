//! The guards that only the statements of MySQL have, and the detector of each.

use std::sync::LazyLock;

use super::{
    Mutant,
    detectors::DetectedBy::{Case, Hammer, Histories, Interleavings, Locks, PurgeStatements},
    mutant, sql_operators,
    sql_steps::{self, SPARED},
};

mod assignments;
pub(super) mod batch_statements;

/// The mutants of all statements.
pub(super) fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
        let placeholder = "?";
        [
            MUTANTS,
            assignments::MUTANTS,
            &sql_steps::mutants(placeholder),
            &sql_steps::of_starting_over(placeholder),
            &sql_operators::mutants(placeholder, "''"),
        ]
        .concat()
    });
    &ALL
}

const IN_ORDER: &str = "a_watched_list_is_in_the_order_of_the_first_claims";
const LOGGED: &str = "the_log_says_what_a_record_was_when_it_was_changed";
const OVER: &str = "a_key_past_its_ttl_is_absent_a_lease_later";
const RENEWED: &str = "renewals_have_their_outcomes_in_order";
const RESUMED: &str = "an_abandoned_operation_with_an_input_is_resumable";
const SCANNED: &str = "every_record_is_on_a_page_of_a_scan";
const SPARES: &str = "a_purge_spares_live_records";
const WATCHED: &str = "what_can_be_held_is_watched";

const MUTANTS: &[Mutant] = &[
    mutant("claim.sql", "INSERT INTO", "INSERT IGNORE INTO", Hammer),
    mutant(
        "existing.sql",
        "ON r.id = ?1",
        "ON true",
        Case("changes_to_one_key_do_not_touch_another"),
    ),
    // The claims that are sent again, and renewals.
    mutant("renew_own.sql", "WHERE id = ?1", "WHERE true", Histories),
    mutant("renew_own.sql", "\n  AND owner = ?2", "", Interleavings),
    mutant("renew_own.sql", "\n  AND state = 1", "", Interleavings),
    mutant("renew.sql", "WHERE id IN ({each,:?1})", "WHERE true", Locks),
    mutant("renew.sql", "\n  AND state = 1", "", Case(RENEWED)),
    mutant("renew.sql", "\nFOR UPDATE SKIP LOCKED", "", Locks),
    mutant("renew.sql", " SKIP LOCKED", "", Locks),
    mutant("renew_locked.sql", "WHERE id IN ({each,:?1})", "WHERE true", Case(RENEWED)),
    mutant("owners.sql", "WHERE id IN ({each,:?1})", "WHERE true", Locks),
    mutant("owners.sql", "\n  AND state = 1", "", Case(RENEWED)),
    // The purge, whose statements find and lock what others change.
    mutant("purge.sql", "\n  AND expires_at <= ?2", "", Case(SPARES)),
    mutant(
        "purge.sql",
        "\n  AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= ?2))",
        "",
        Case(SPARES),
    ),
    mutant("purge.sql", " AND lease_until <= ?2", "", Case(SPARES)),
    mutant("purge.sql", "\nFOR UPDATE SKIP LOCKED", "", Locks),
    mutant("purge.sql", " SKIP LOCKED", "", Locks),
    mutant("delete_locked.sql", "WHERE id IN ({each,:?1})", "WHERE true", PurgeStatements),
    mutant("keep.sql", "\n  AND expires_at <= ?2", "", PurgeStatements),
    mutant("keep.sql", "\n  AND (state = 3 OR (state = 1 AND abandoned = 1))", "", Case(SPARED)),
    mutant("keep.sql", "\nFOR UPDATE SKIP LOCKED", "", Locks),
    mutant("keep.sql", " SKIP LOCKED", "", Locks),
    mutant("keep_locked.sql", "WHERE id IN ({each,:?1})", "WHERE true", Case(SPARED)),
    mutant("shorten_expired.sql", "\n  AND expires_at <= ?1", "", Case(OVER)),
    mutant("shorten_expired.sql", "\n  AND state = 1", "", PurgeStatements),
    mutant("shorten_expired.sql", "\n  AND abandoned = 0", "", Case(OVER)),
    mutant("shorten_expired.sql", "\n  AND lease_until > ?1 + lease", "", Locks),
    mutant("shorten_expired.sql", "\nFOR UPDATE SKIP LOCKED", "", Locks),
    mutant("shorten_expired.sql", " SKIP LOCKED", "", Locks),
    mutant("shorten_locked.sql", "WHERE id IN ({each,:?1})", "WHERE true", PurgeStatements),
    mutant("shorten_locked.sql", "\n  AND lease_until > {now} + lease", "", PurgeStatements),
    // Lists.
    // Without it the list is right, but reads the whole index.
    mutant("resumable.sql", "WHERE watch IS NOT NULL", "WHERE false", Case(RESUMED)),
    mutant("resumable.sql", "\n  AND input IS NOT NULL", "", Case(RESUMED)),
    mutant(
        "resumable.sql",
        "\n  AND operation = ?1",
        "",
        Case("operations_are_resumed_by_their_name"),
    ),
    mutant("watched.sql", "WHERE watch >= ?1\n      AND ", "WHERE ", Case(WATCHED)),
    mutant("watched.sql", "\n      AND (watch > ?1 OR id > ?2)", "", Case(IN_ORDER)),
    mutant("watched.sql", "watch > ?1 OR ", "", Case(IN_ORDER)),
    mutant("watched.sql", " OR id > ?2", "", Case(IN_ORDER)),
    mutant("scan.sql", "(?3 = '' OR r.operation = ?3)", "r.operation = ?3", Case(SCANNED)),
    mutant(
        "scan.sql",
        "AND (?4 = '' OR INSTR(?4, r.principal) > 0)",
        "AND INSTR(?4, r.principal) > 0",
        Case(SCANNED),
    ),
    mutant("scan.sql", "AND (?5 = '' OR r.reference = ?5)", "AND r.reference = ?5", Case(SCANNED)),
    // What the log says.
    mutant("before.sql", "WHERE id = ?1", "WHERE true", Case(LOGGED)),
    mutant("before.sql", "\nFOR UPDATE", "", Locks),
    mutant("before.sql", "CASE WHEN state = 2 THEN", "CASE WHEN false THEN", Case(LOGGED)),
    mutant("before.sql", "COALESCE(CONCAT(' ', status), '')", "''", Case(LOGGED)),
    mutant("before.sql", "WHEN state = 3 OR ", "WHEN ", Case(LOGGED)),
    mutant("before.sql", "abandoned = 1 AND lease_until", "lease_until", Case(LOGGED)),
    mutant("before.sql", "abandoned = 1 AND lease_until <= {now}", "abandoned = 1", Case(LOGGED)),
];
