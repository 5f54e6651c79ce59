//! The guards of single columns. An assignment sees the values that were assigned before it.

use crate::mutants::{
    Mutant,
    detectors::DetectedBy::{Case, Hammer, Histories},
    mutant,
    sql_steps::SPARED,
};

const APPENDED: &str = "a_history_tells_of_each_attempt_and_of_its_end";
const HELD: &str = "an_abandoned_key_is_held";
const LOST: &str = "an_expired_key_starts_without_notes";
const NOTED: &str = "a_note_replaces_what_it_names_and_adds_its_step";
const PAST_THE_POINT: &str = "after_the_point_of_no_return_the_key_is_held";
const REPLACED: &str = "bytes_are_replaced_if_they_are_those_that_were_seen";
const RESUMED: &str = "an_abandoned_operation_with_an_input_is_resumable";
const STAYS: &str = "the_first_completion_stays";
const WATCHED: &str = "what_can_be_held_is_watched";

pub(super) const MUTANTS: &[Mutant] = &[
    mutant("claim.sql", "IF(?6 = 1, clock.now, NULL)", "NULL", Case(WATCHED)),
    mutant(
        "start_over.sql",
        "IF(?6 = 1, clock.now, NULL)",
        "NULL",
        Case("a_key_that_starts_over_is_watched_if_it_can_be_held"),
    ),
    mutant("start_over.sql", ",\n    r.completed_at = NULL", "", Case(LOST)),
    mutant("start_over.sql", ",\n    r.status = NULL", "", Case(LOST)),
    mutant("start_over.sql", ",\n    r.reference = NULL", "", Case(LOST)),
    mutant("start_over.sql", ",\n    r.progress = NULL", "", Case(LOST)),
    mutant("start_over.sql", ",\n    r.steps = NULL", "", Case(LOST)),
    mutant("start_over.sql", ",\n    r.input = NULL", "", Case(LOST)),
    mutant("renew_locked.sql", ", watch = first_seen", "", Case("what_is_renewed_is_watched")),
    mutant(
        "abandon.sql",
        "lease_until = IF(abandoned = 1 OR ?3 = 1, lease_until, 0)",
        "lease_until = 0",
        Case(HELD),
    ),
    mutant(
        "abandon.sql",
        "watch = IF(abandoned = 1 OR ?3 = 1, first_seen, watch)",
        "watch = watch",
        Case(WATCHED),
    ),
    mutant(
        "abandon.sql",
        "IF(abandoned = 1 OR ?3 = 1, {appended:'h'}, {appended:'a'})",
        "{appended:'h'}",
        Case(APPENDED),
    ),
    mutant(
        "abandon.sql",
        "state = IF(abandoned = 1 OR ?3 = 1, 3, 1)",
        "state = 3",
        Case("an_abandoned_key_can_be_taken_over_at_once"),
    ),
    mutant("abandon.sql", "state = IF(abandoned = 1 OR ", "state = IF(", Case(HELD)),
    mutant("complete.sql", "kept = 0,\n    ", "", Case(SPARED)),
    mutant("complete.sql", "SET kept", "SET state = 2,\n    kept", Histories),
    mutant("complete.sql", "IF(state = 2, recording, ?3)", "?3", Hammer),
    mutant("complete.sql", "IF(state = 2, completed_at, {now})", "{now}", Case(STAYS)),
    mutant("complete.sql", "IF(state = 2, status, NULLIF(?4, 0))", "NULLIF(?4, 0)", Case(STAYS)),
    mutant(
        "complete.sql",
        "IF(state = 2, history, {appended:'d'})",
        "{appended:'d'}",
        Case("what_changes_nothing_has_no_entry"),
    ),
    mutant("complete.sql", "expires_at =\n", "state = 2,\n    expires_at =\n", Histories),
    mutant("complete.sql", " AND expires_at <= {now},", ",", Histories),
    mutant(
        "complete.sql",
        "IF(state <> 2 AND expires_at <= {now}, {now} + expires_at - first_seen, expires_at)",
        "expires_at",
        Histories,
    ),
    mutant("resolve_complete.sql", "kept = 0,\n    ", "", Case(SPARED)),
    mutant("resolve_complete.sql", ",\n    status = NULLIF(?4, 0)", "", Case(PAST_THE_POINT)),
    mutant(
        "resolve_complete.sql",
        "IF(expires_at <= {now}, {now} + expires_at - first_seen, expires_at)",
        "expires_at",
        Case("a_resolution_after_the_ttl_is_replayed"),
    ),
    mutant(
        "resolve_complete.sql",
        "IF(expires_at <= {now}, {now} + expires_at - first_seen, expires_at)",
        "{now} + expires_at - first_seen",
        Case("a_held_key_is_resolved_by_a_recording"),
    ),
    mutant("note.sql", "IF(?5 = '', steps, CONCAT(COALESCE(steps, ''), ?5))", "?5", Case(NOTED)),
    mutant("note.sql", "COALESCE(NULLIF(?3, ''), reference)", "NULLIF(?3, '')", Case(NOTED)),
    mutant("note.sql", "COALESCE(NULLIF(?4, ''), progress)", "NULLIF(?4, '')", Case(NOTED)),
    mutant("note.sql", "COALESCE(NULLIF(?6, ''), input)", "NULLIF(?6, '')", Case(NOTED)),
    mutant("note.sql", "GREATEST(abandoned, ?7)", "?7", Case(PAST_THE_POINT)),
    mutant("note.sql", "GREATEST(abandoned, ?7)", "abandoned", Case(PAST_THE_POINT)),
    mutant("note.sql", "IF(?7 = 1 OR ?6 <> '', first_seen, watch)", "watch", Case(WATCHED)),
    mutant("note.sql", "?7 = 1 OR ", "", Case(WATCHED)),
    mutant("note.sql", " OR ?6 <> ''", "", Case(RESUMED)),
    mutant("replace.sql", "IF(?3 = '', recording, ?4)", "?4", Case(REPLACED)),
    mutant("replace.sql", "IF(?5 = '', steps, NULLIF(?6, ''))", "NULLIF(?6, '')", Case(REPLACED)),
    mutant("replace.sql", "IF(?7 = '', input, NULLIF(?8, ''))", "NULLIF(?8, '')", Case(REPLACED)),
];
