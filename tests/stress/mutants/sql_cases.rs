//! The guards that the statements of Postgres and SQLite have in common, and the detector of each.
//! MySQL writes most of them as `IF(…)`.

use super::{
    Mutant,
    detectors::DetectedBy::{Case, Hammer, Histories},
    mutant,
    sql_steps::{SPARED, written},
};

const WATCHED: &str = "what_can_be_held_is_watched";
const APPENDED: &str = "a_history_tells_of_each_attempt_and_of_its_end";
const LOGGED: &str = "the_log_says_what_a_record_was_when_it_was_changed";
const REPLACED: &str = "bytes_are_replaced_if_they_are_those_that_were_seen";

/// The columns that a record loses when an expired key starts over.
const LOST: [&str; 6] = [
    ",\n    completed_at = NULL",
    ",\n    status      = NULL",
    ",\n    reference   = NULL",
    ",\n    progress    = NULL",
    ",\n    steps       = NULL",
    ",\n    input       = NULL",
];

/// The mutants of a store's statements, whose placeholders begin with `placeholder`, and which
/// write no bytes as `empty`. The statement `starts_over` is that which starts an expired key over.
pub(super) fn mutants(placeholder: &str, empty: &str, starts_over: &'static str) -> Vec<Mutant> {
    let lost = LOST
        .iter()
        .map(|column| mutant(starts_over, column, "", Case("an_expired_key_starts_without_notes")));
    written(MUTANTS, placeholder, empty).into_iter().chain(lost).collect()
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "abandon.sql",
        "state = CASE WHEN abandoned = 1 OR $3 = 1 THEN 3 ELSE 1 END",
        "state = 3",
        Case("an_abandoned_key_can_be_taken_over_at_once"),
    ),
    mutant(
        "abandon.sql",
        "state = CASE WHEN abandoned = 1 OR $3 = 1",
        "state = CASE WHEN $3 = 1",
        Case("an_abandoned_key_is_held"),
    ),
    mutant(
        "abandon.sql",
        "lease_until = CASE WHEN abandoned = 1 OR $3 = 1 THEN lease_until ELSE 0 END",
        "lease_until = 0",
        Case("an_abandoned_key_is_held"),
    ),
    mutant("complete.sql", "CASE state WHEN 2 THEN recording ELSE $3 END", "$3", Hammer),
    mutant("complete.sql", " AND expires_at <= {now} THEN", " THEN", Histories),
    mutant(
        "complete.sql",
        "CASE WHEN state <> 2 AND expires_at <= {now} \
         THEN {now} + expires_at - first_seen\n        ELSE expires_at END",
        "expires_at",
        Histories,
    ),
    mutant(
        "resolve_complete.sql",
        "CASE WHEN expires_at <= {now} THEN {now} + expires_at - first_seen ELSE expires_at END",
        "expires_at",
        Case("a_resolution_after_the_ttl_is_replayed"),
    ),
    mutant(
        "resolve_complete.sql",
        "CASE WHEN expires_at <= {now} THEN {now} + expires_at - first_seen ELSE expires_at END",
        "{now} + expires_at - first_seen",
        Case("a_held_key_is_resolved_by_a_recording"),
    ),
    mutant(
        "purge.sql",
        "\n      AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= {now}))",
        "",
        Case("a_purge_spares_live_records"),
    ),
    mutant("purge.sql", " AND lease_until <= {now}", "", Case("a_purge_spares_live_records")),
    mutant(
        "keep.sql",
        "\n      AND (state = 3 OR (state = 1 AND abandoned = 1))",
        "",
        Case(SPARED),
    ),
    mutant("complete.sql", "\n    kept = 0,", "", Case(SPARED)),
    mutant("resolve_complete.sql", "\n    kept = 0,", "", Case(SPARED)),
    mutant(
        "complete.sql",
        "CASE state WHEN 2 THEN completed_at ELSE {now} END",
        "{now}",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete.sql",
        "CASE state WHEN 2 THEN status ELSE nullif($4, 0) END",
        "nullif($4, 0)",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "resolve_complete.sql",
        ",\n    status = nullif($4, 0)",
        "",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "resumable.sql",
        "WHERE input IS NOT NULL",
        "WHERE true",
        Case("an_abandoned_operation_with_an_input_is_resumable"),
    ),
    mutant(
        "abandon.sql",
        "watch = CASE WHEN abandoned = 1 OR $3 = 1 THEN first_seen ELSE watch END",
        "watch = watch",
        Case(WATCHED),
    ),
    mutant(
        "abandon.sql",
        "CASE WHEN abandoned = 1 OR $3 = 1 THEN {appended:'h'} ELSE {appended:'a'} END",
        "{appended:'h'}",
        Case(APPENDED),
    ),
    mutant(
        "complete.sql",
        "CASE state WHEN 2 THEN history ELSE {appended:'d'} END",
        "{appended:'d'}",
        Case("what_changes_nothing_has_no_entry"),
    ),
    mutant("renew.sql", ", watch = r.first_seen", "", Case("what_is_renewed_is_watched")),
    mutant("note.sql", "CASE $7 WHEN 1 THEN first_seen ELSE watch END", "watch", Case(WATCHED)),
    mutant("remove.sql", "CASE WHEN state = 2 THEN", "CASE WHEN false THEN", Case(LOGGED)),
    mutant("remove.sql", " || coalesce(' ' || status, '')", "", Case(LOGGED)),
    mutant("remove.sql", "WHEN state = 3 OR ", "WHEN ", Case(LOGGED)),
    mutant("remove.sql", "abandoned = 1 AND lease_until", "lease_until", Case(LOGGED)),
    mutant("remove.sql", "abandoned = 1 AND lease_until <= {now}", "abandoned = 1", Case(LOGGED)),
    mutant("replace.sql", "CASE $3 WHEN EMPTY THEN recording ELSE $4 END", "$4", Case(REPLACED)),
    mutant(
        "replace.sql",
        "CASE $5 WHEN EMPTY THEN steps ELSE nullif($6, EMPTY) END",
        "nullif($6, EMPTY)",
        Case(REPLACED),
    ),
    mutant(
        "replace.sql",
        "CASE $7 WHEN EMPTY THEN input ELSE nullif($8, EMPTY) END",
        "nullif($8, EMPTY)",
        Case(REPLACED),
    ),
    // Without it the list is right, but reads the whole table.
    mutant("watched.sql", "WHERE watch IS NOT NULL", "WHERE false", Case(WATCHED)),
    mutant(
        "watched.sql",
        "\n      AND (watch, id) > ($1, $2)",
        "",
        Case("a_watched_list_is_in_the_order_of_the_first_claims"),
    ),
];
