//! The guards of the statements for batches.

use crate::mutants::{
    Mutant,
    detectors::DetectedBy::{BlockedReplay, Case, Damage, Hammer, Histories, LargeReplay},
    mutant,
};

pub(in crate::mutants) const MUTANTS: &[Mutant] = &[
    mutant(
        "claim_batch.sql",
        "CASE new_abandoned WHEN 1 THEN now END",
        "NULL::bigint",
        Case("what_can_be_held_is_watched"),
    ),
    mutant(
        "complete_batch.sql",
        "CASE r.state WHEN 2 THEN r.history ELSE {appended:'d'} END",
        "{appended:'d'}",
        Case("what_changes_nothing_has_no_entry"),
    ),
    mutant("claim_batch.sql", "WHERE r.id = claim.id", "WHERE true", Histories),
    mutant("claim_batch.sql", "WHERE state IS NULL\n      AND ", "WHERE ", BlockedReplay),
    mutant(
        "claim_batch.sql",
        "\n      AND pg_try_advisory_xact_lock(lock # {locked_table})",
        "",
        Hammer,
    ),
    mutant("claim_batch.sql", "\nWHERE state IS NOT NULL", "", Hammer),
    mutant(
        "claim_batch.sql",
        "CASE WHEN octet_length(r.recording) < $10\n                   \
         THEN octet_length(r.recording) END AS",
        "octet_length(r.recording) AS",
        LargeReplay,
    ),
    mutant("claim_batch.sql", "size IS NOT NULL\n             AND ", "", LargeReplay),
    mutant(
        "claim_batch.sql",
        "CASE WHEN size IS NOT NULL\n             \
         AND sum(size) OVER (ROWS UNBOUNDED PRECEDING) <= $11\n           \
         THEN recording END AS",
        "recording AS",
        LargeReplay,
    ),
    mutant("complete_batch.sql", "WHERE r.id = done.id\n  AND ", "WHERE ", Histories),
    mutant("complete_batch.sql", "\n  AND r.owner = done.owner", "", Hammer),
    mutant("complete_batch.sql", "\n  AND r.state IN (1, 2, 3)", "", Damage),
    mutant(
        "complete_batch.sql",
        "CASE r.state WHEN 2 THEN r.recording ELSE done.recording END",
        "done.recording",
        Hammer,
    ),
    mutant("complete_batch.sql", "r.state <> 2 AND ", "", Histories),
    mutant("complete_batch.sql", " AND r.expires_at <= {now}\n        THEN", " THEN", Histories),
    mutant(
        "complete_batch.sql",
        "CASE WHEN r.state <> 2 AND r.expires_at <= {now}\n        \
         THEN {now} + r.expires_at - r.first_seen ELSE r.expires_at END",
        "r.expires_at",
        Histories,
    ),
    mutant("complete_batch.sql", "\n    kept = 0,", "", Case(super::SPARED)),
    mutant(
        "complete_batch.sql",
        "CASE r.state WHEN 2 THEN r.completed_at ELSE {now} END",
        "{now}",
        Case("the_first_completion_stays"),
    ),
    mutant(
        "complete_batch.sql",
        "CASE r.state WHEN 2 THEN r.status ELSE nullif(done.status, 0) END",
        "nullif(done.status, 0)",
        Case("the_first_completion_stays"),
    ),
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
];
