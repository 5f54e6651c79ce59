//! The guards of what the SQLite statements do with notes.

use crate::mutants::{
    Mutant,
    detectors::DetectedBy::{Case, Histories},
    mutant,
};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant("note.sql", "WHERE id = ?1", "WHERE true", Histories),
    mutant("note.sql", "\n  AND owner = ?2", "", Case("a_takeover_keeps_the_notes")),
    mutant("note.sql", "\n  AND state = 1", "", Case("a_completion_keeps_only_the_reference")),
    mutant(
        "note.sql",
        "CASE ?5 WHEN x'' THEN steps ELSE CAST(coalesce(steps, x'') || ?5 AS BLOB) END",
        "?5",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif(?3, ''), reference)",
        "nullif(?3, '')",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif(?4, ''), progress)",
        "nullif(?4, '')",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "coalesce(nullif(?6, x''), input)",
        "nullif(?6, x'')",
        Case("a_note_replaces_what_it_names_and_adds_its_step"),
    ),
    mutant(
        "note.sql",
        "max(abandoned, ?7)",
        "?7",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "note.sql",
        "max(abandoned, ?7)",
        "abandoned",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "complete.sql",
        "CASE state WHEN 2 THEN completed_at ELSE {now} END",
        "{now}",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete.sql",
        "CASE state WHEN 2 THEN status ELSE nullif(?4, 0) END",
        "nullif(?4, 0)",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete.sql",
        ",\n    progress = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant(
        "complete.sql",
        ",\n    steps = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant(
        "complete.sql",
        ",\n    input = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant(
        "resolve_complete.sql",
        ",\n    completed_at = {now}",
        "",
        Case("after_the_point_of_no_return_the_key_is_held"),
    ),
    mutant(
        "resolve_complete.sql",
        ",\n    status = nullif(?4, 0)",
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
        "resumable.sql",
        "\n  AND state = 1",
        "",
        Case("an_abandoned_operation_with_an_input_is_resumable"),
    ),
    mutant(
        "resumable.sql",
        "\n  AND abandoned = 0",
        "",
        Case("an_abandoned_operation_with_an_input_is_resumable"),
    ),
    mutant(
        "resumable.sql",
        "\n  AND lease_until <= {now}",
        "",
        Case("an_abandoned_operation_with_an_input_is_resumable"),
    ),
    mutant(
        "resumable.sql",
        "\n  AND expires_at > {now}",
        "",
        Case("an_abandoned_operation_with_an_input_is_resumable"),
    ),
    mutant(
        "claim.sql",
        ",\n    completed_at = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
    mutant(
        "claim.sql",
        ",\n    status      = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
    mutant(
        "claim.sql",
        ",\n    reference   = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
    mutant(
        "claim.sql",
        ",\n    progress    = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
    mutant(
        "claim.sql",
        ",\n    steps       = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
    mutant(
        "claim.sql",
        ",\n    input       = NULL",
        "",
        Case("an_expired_key_starts_without_notes"),
    ),
];
