//! The guards that only the Postgres statements have, and the detector of each.

use std::sync::LazyLock;

use super::{
    Mutant,
    detectors::DetectedBy::{
        BlockedReplay, Case, ConcurrentInsert, Expiry, Hammer, Histories, HistoriesInTransactions,
        PurgeStatements, SyntaxError,
    },
    mutant, sql_cases, sql_operators,
    sql_steps::{self, SPARED},
};

pub(super) mod batch_statements;

/// The mutants of all statements.
pub(super) fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
        let (placeholder, empty) = ("$", "''::bytea");
        [
            MUTANTS,
            &sql_steps::mutants(placeholder),
            &sql_steps::of_starting_over(placeholder),
            &sql_operators::mutants(placeholder, empty),
            &sql_cases::mutants(placeholder, empty, "start_over.sql"),
        ]
        .concat()
    });
    &ALL
}

/// The cases for claims that can be held.
const WATCHED: &str = "what_can_be_held_is_watched";
const STARTED_OVER: &str = "a_key_that_starts_over_is_watched_if_it_can_be_held";
const COMMITTED: &str = "a_claim_that_is_committed_alone_is_watched_if_it_can_be_held";
const SCANNED: &str = "every_record_is_on_a_page_of_a_scan";

const MUTANTS: &[Mutant] = &[
    mutant("claim.sql", "CASE $6 WHEN 1 THEN clock.now END", "NULL", Case(WATCHED)),
    mutant("start_over.sql", "CASE $6 WHEN 1 THEN clock.now END", "NULL", Case(STARTED_OVER)),
    mutant(
        "take_over.sql",
        "CASE $6 WHEN 1 THEN first_seen ELSE watch END",
        "watch",
        Case(COMMITTED),
    ),
    mutant(
        "scan.sql",
        "AND ($4 = ''::bytea OR position(r.principal IN $4) > 0)",
        "AND position(r.principal IN $4) > 0",
        Case(SCANNED),
    ),
    mutant(
        "scan.sql",
        "AND ($5 = ''::bytea OR r.reference = convert_from($5, 'UTF8'))",
        "AND r.reference = convert_from($5, 'UTF8')",
        Case(SCANNED),
    ),
    mutant(
        "shorten_expired.sql",
        "\n      AND expires_at <= (SELECT {now})",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "shorten_expired.sql",
        "WHERE r.id = longer.id",
        "WHERE true",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "claim.sql",
        "WHERE r.id = $1",
        "WHERE true",
        Case("changes_to_one_key_do_not_touch_another"),
    ),
    mutant("claim.sql", "WHERE NOT EXISTS (SELECT FROM seen)\n      AND ", "WHERE ", BlockedReplay),
    mutant("claim.sql", "\n      AND pg_try_advisory_xact_lock($9 # {locked_table})", "", Hammer),
    mutant("claim.sql", "ON CONFLICT (id) DO NOTHING", "", ConcurrentInsert),
    mutant("insert.sql", "WHERE true", "WHERE false", HistoriesInTransactions),
    mutant("insert_completed.sql", "WHERE true", "", SyntaxError),
    mutant(
        "insert_completed.sql",
        "CASE WHEN $8 + $5 <= clock.now THEN clock.now + $5 ELSE $8 + $5 END",
        "$8 + $5",
        Expiry,
    ),
    mutant(
        "renew.sql",
        "    WHERE r.owner = lease.owner\n      AND ",
        "    WHERE ",
        Case("a_replaced_owner_can_do_nothing"),
    ),
    mutant("renew.sql", "WHERE r.id = due.id", "WHERE true", Histories),
    mutant(
        "renew.sql",
        "WHERE r.state = 1\n  AND ",
        "WHERE ",
        Case("renewals_have_their_outcomes_in_order"),
    ),
    mutant(
        "renew.sql",
        "\n  AND NOT EXISTS (SELECT FROM renewed WHERE renewed.id = r.id)",
        "",
        Histories,
    ),
    mutant(
        "purge.sql",
        "\n      AND expires_at <= (SELECT {now})",
        "",
        Case("a_purge_spares_live_records"),
    ),
    mutant(
        "purge.sql",
        "WHERE r.id = expired.id",
        "WHERE true",
        Case("a_purge_removes_at_most_its_limit"),
    ),
    mutant("keep.sql", "\n      AND expires_at <= (SELECT {now})", "", PurgeStatements),
    mutant("keep.sql", "WHERE r.id = held.id", "WHERE true", Case(SPARED)),
    mutant(
        "note.sql",
        "CASE $5 WHEN ''::bytea THEN steps ELSE coalesce(steps, ''::bytea) || $5 END",
        "$5",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif(convert_from($3, 'UTF8'), ''), reference)",
        "nullif(convert_from($3, 'UTF8'), '')",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif(convert_from($4, 'UTF8'), ''), progress)",
        "nullif(convert_from($4, 'UTF8'), '')",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif($6, ''::bytea), input)",
        "nullif($6, ''::bytea)",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "greatest(abandoned, $7)",
        "$7",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "note.sql",
        "greatest(abandoned, $7)",
        "abandoned",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "resumable.sql",
        "\n  AND operation = convert_from($1, 'UTF8')",
        "",
        Case("operations_are_resumed_by_their_name"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n      AND state = 1",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n      AND abandoned = 0",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n      AND lease_until > {now} + lease",
        "",
        Case("a_purge_spares_live_records"),
    ),
    mutant("renew.sql", "\n      AND r.state = 1", "", Hammer),
];
