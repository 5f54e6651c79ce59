//! The guards of what operators need, in the statements that all SQL stores have in common, and the
//! detector of each.

use super::{
    Mutant,
    detectors::DetectedBy::{Case, Histories},
    mutant,
    sql_steps::written,
};

const WATCHED: &str = "what_can_be_held_is_watched";
const REMOVED_LIVE: &str = "a_live_record_is_removed_only_if_it_may_be";
const HELD: &str = "a_key_that_is_held_past_its_ttl_is_live";
const REPLACED: &str = "bytes_are_replaced_if_they_are_those_that_were_seen";
const SCANNED: &str = "every_record_is_on_a_page_of_a_scan";

/// The mutants of a store's statements, whose placeholders begin with `placeholder`, and which
/// write no bytes as `empty`.
pub(super) fn mutants(placeholder: &str, empty: &str) -> Vec<Mutant> {
    written(MUTANTS, placeholder, empty)
}

const MUTANTS: &[Mutant] = &[
    mutant("complete.sql", ",\n    watch = NULL", "", Case(WATCHED)),
    mutant("resolve_complete.sql", ",\n    watch = NULL", "", Case(WATCHED)),
    mutant("hold.sql", "watch = first_seen, ", "", Case(WATCHED)),
    mutant("remove.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("remove.sql", "\n  AND owner = $2", "", Case("a_completed_record_is_removed")),
    mutant("remove.sql", "$3 = 1\n       OR ", "", Case(REMOVED_LIVE)),
    mutant("remove.sql", "AND ($3 = 1", "AND (true", Case(REMOVED_LIVE)),
    mutant("remove.sql", "state = 1 AND abandoned = 0", "abandoned = 0", Case(HELD)),
    mutant("remove.sql", " AND abandoned = 0", "", Case(HELD)),
    mutant("remove.sql", " AND lease_until <= {now} AND", " AND", Case(REMOVED_LIVE)),
    mutant("remove.sql", " AND expires_at <= {now}", "", Case(REMOVED_LIVE)),
    mutant("replace.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("replace.sql", "\n  AND owner = $2", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($3 = EMPTY OR recording = $3)", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($5 = EMPTY OR steps = $5)", "", Case(REPLACED)),
    mutant("replace.sql", "\n  AND ($7 = EMPTY OR input = $7)", "", Case(REPLACED)),
    mutant("append_history.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("scan.sql", "WHERE id > $1", "WHERE true", Case(SCANNED)),
    mutant(
        "find.sql",
        "WHERE id BETWEEN $1 AND $2",
        "WHERE true",
        Case("a_record_is_found_by_the_beginning_of_its_id"),
    ),
];
