//! The guards of the statements for batches.

use crate::mutants::{
    Mutant,
    detectors::DetectedBy::{Case, Damage, Hammer, Histories, LargeReplay, Locks},
    mutant,
    sql_steps::SPARED,
};

pub(in crate::mutants) const MUTANTS: &[Mutant] = &[
    mutant("claim_batch.sql", "INSERT INTO", "INSERT IGNORE INTO", Hammer),
    mutant("claim_batch.sql", "IF(?6 = 1, {1}, NULL)", "NULL", Case("what_can_be_held_is_watched")),
    mutant("existing_batch.sql", "WHERE id IN ({each,:?1})", "WHERE true", Locks),
    mutant(
        "existing_batch.sql",
        "IF(LENGTH(recording) < ?1, recording, NULL)",
        "recording",
        LargeReplay,
    ),
    // Without it a batch is right, since no other record has an owner there, but reads the table.
    mutant(
        "complete_batch.sql",
        "WHERE id IN ({each,:?1})",
        "WHERE false AND id IN ({each,:?1})",
        LargeReplay,
    ),
    mutant("complete_batch.sql", "\n  AND owner = CASE id {each :WHEN ?1 THEN ?2} END", "", Hammer),
    mutant("complete_batch.sql", "\n  AND state IN (1, 2, 3)", "", Damage),
    // The table refuses it, and each completion is then executed alone.
    mutant("complete_batch.sql", "SET kept", "SET state = 2,\n    kept", LargeReplay),
    mutant("complete_batch.sql", "kept = 0,\n    ", "", Case(SPARED)),
    mutant(
        "complete_batch.sql",
        "IF(state = 2, recording, CASE id {each :WHEN ?1 THEN ?3} END)",
        "CASE id {each :WHEN ?1 THEN ?3} END",
        Hammer,
    ),
    mutant(
        "complete_batch.sql",
        "IF(state = 2, completed_at, {now})",
        "{now}",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete_batch.sql",
        "IF(state = 2, status, NULLIF(CASE id {each :WHEN ?1 THEN ?4} END, 0))",
        "NULLIF(CASE id {each :WHEN ?1 THEN ?4} END, 0)",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete_batch.sql",
        "IF(state = 2, history, {appended:'d'})",
        "{appended:'d'}",
        Case("what_changes_nothing_has_no_entry"),
    ),
    mutant("complete_batch.sql", ",\n    watch = NULL", "", Case("what_can_be_held_is_watched")),
    mutant(
        "complete_batch.sql",
        ",\n    progress = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant(
        "complete_batch.sql",
        ",\n    steps = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant(
        "complete_batch.sql",
        ",\n    input = NULL",
        "",
        Case("a_completion_keeps_only_the_reference"),
    ),
    mutant("complete_batch.sql", "expires_at =\n", "state = 2,\n    expires_at =\n", Histories),
    mutant("complete_batch.sql", "state <> 2 AND ", "", Histories),
    mutant("complete_batch.sql", " AND expires_at <= {now},", ",", Histories),
    mutant(
        "complete_batch.sql",
        "IF(state <> 2 AND expires_at <= {now}, {now} + expires_at - first_seen, expires_at)",
        "expires_at",
        Histories,
    ),
];
