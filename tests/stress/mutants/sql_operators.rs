//! The guards of what operators need, in the statements that Postgres and SQLite have in common,
//! and the detector of each.

use super::{
    Mutant,
    detectors::DetectedBy::{Case, Histories},
    mutant,
};

const WATCHED: &str = "what_can_be_held_is_watched";
const APPENDED: &str = "a_history_tells_of_each_attempt_and_of_its_end";
const REMOVED_LIVE: &str = "a_live_record_is_removed_only_if_it_may_be";
const LOGGED: &str = "the_log_says_what_a_record_was_when_it_was_changed";
const HELD: &str = "a_key_that_is_held_past_its_ttl_is_live";
const REPLACED: &str = "bytes_are_replaced_if_they_are_those_that_were_seen";
const SCANNED: &str = "every_record_is_on_a_page_of_a_scan";

/// The mutants of a store's statements, whose placeholders begin with `placeholder`, and which
/// write no bytes as `empty`.
pub(super) fn mutants(placeholder: &str, empty: &str) -> Vec<Mutant> {
    let own = |text: &'static str| -> &'static str {
        text.replace('$', placeholder).replace("EMPTY", empty).leak()
    };
    let mutants = MUTANTS.iter().map(|mutant| Mutant {
        guard: own(mutant.guard),
        replacement: own(mutant.replacement),
        ..*mutant
    });
    mutants.collect()
}

const MUTANTS: &[Mutant] = &[
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
    mutant("complete.sql", ",\n    watch = NULL", "", Case(WATCHED)),
    mutant("resolve_complete.sql", ",\n    watch = NULL", "", Case(WATCHED)),
    mutant("hold.sql", "watch = first_seen, ", "", Case(WATCHED)),
    mutant("renew.sql", ", watch = r.first_seen", "", Case("what_is_renewed_is_watched")),
    mutant("note.sql", "CASE $7 WHEN 1 THEN first_seen ELSE watch END", "watch", Case(WATCHED)),
    mutant("remove.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("remove.sql", "\n  AND owner = $2", "", Case("a_completed_record_is_removed")),
    mutant("remove.sql", "$3 = 1\n       OR ", "", Case(REMOVED_LIVE)),
    mutant("remove.sql", "AND ($3 = 1", "AND (true", Case(REMOVED_LIVE)),
    mutant("remove.sql", "state = 1 AND abandoned = 0", "abandoned = 0", Case(HELD)),
    mutant("remove.sql", " AND abandoned = 0", "", Case(HELD)),
    mutant("remove.sql", " AND lease_until <= {now} AND", " AND", Case(REMOVED_LIVE)),
    mutant("remove.sql", " AND expires_at <= {now}", "", Case(REMOVED_LIVE)),
    mutant("remove.sql", "CASE WHEN state = 2 THEN", "CASE WHEN false THEN", Case(LOGGED)),
    mutant("remove.sql", " || coalesce(' ' || status, '')", "", Case(LOGGED)),
    mutant("remove.sql", "WHEN state = 3 OR ", "WHEN ", Case(LOGGED)),
    mutant("remove.sql", "abandoned = 1 AND lease_until", "lease_until", Case(LOGGED)),
    mutant("remove.sql", "abandoned = 1 AND lease_until <= {now}", "abandoned = 1", Case(LOGGED)),
    mutant("replace.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("replace.sql", "\n  AND owner = $2", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($3 = EMPTY OR recording = $3)", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($5 = EMPTY OR steps = $5)", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($7 = EMPTY OR input = $7)", "", Case(REPLACED)),
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
    mutant("append_history.sql", "WHERE id = $1", "WHERE true", Histories),
    // Without it the list is right, but reads the whole table.
    mutant("watched.sql", "WHERE watch IS NOT NULL", "WHERE false", Case(WATCHED)),
    mutant(
        "watched.sql",
        "\n      AND (watch, id) > ($1, $2)",
        "",
        Case("a_watched_list_is_in_the_order_of_the_first_claims"),
    ),
    mutant("scan.sql", "WHERE id > $1", "WHERE true", Case(SCANNED)),
    mutant(
        "find.sql",
        "WHERE id BETWEEN $1 AND $2",
        "WHERE true",
        Case("a_record_is_found_by_the_beginning_of_its_id"),
    ),
];
