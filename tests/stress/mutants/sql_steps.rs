//! The guards that the statements of Postgres and SQLite have in common, and the detector of each.

use super::{
    Mutant,
    detectors::DetectedBy::{
        Case, ConcurrentChange, Damage, Hammer, Histories, Interleavings, ProvedBy, PurgeStatements,
    },
    mutant,
};

/// The case for marks on records that a purge must remove later.
pub(super) const SPARED: &str = "a_purge_removes_what_an_earlier_one_has_spared";

/// The columns that a record loses when an expired key starts over.
const LOST: [&str; 6] = [
    ",\n    completed_at = NULL",
    ",\n    status      = NULL",
    ",\n    reference   = NULL",
    ",\n    progress    = NULL",
    ",\n    steps       = NULL",
    ",\n    input       = NULL",
];

/// The mutants of a store's statements, whose placeholders begin with `placeholder`. The statement
/// `starts_over` is that which starts an expired key over.
pub(super) fn mutants(placeholder: &str, starts_over: &'static str) -> Vec<Mutant> {
    let own = |text: &'static str| -> &'static str { text.replace('$', placeholder).leak() };
    let common = MUTANTS.iter().map(|mutant| Mutant {
        guard: own(mutant.guard),
        replacement: own(mutant.replacement),
        ..*mutant
    });
    let lost = LOST
        .iter()
        .map(|column| mutant(starts_over, column, "", Case("an_expired_key_starts_without_notes")));
    common.chain(lost).collect()
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "shorten.sql",
        "WHERE id = $1",
        "WHERE true",
        Case("a_shortening_touches_no_other_record"),
    ),
    mutant(
        "shorten.sql",
        "\n  AND owner = $2",
        "",
        Case("a_stranded_key_is_resolved_a_lease_later"),
    ),
    mutant(
        "shorten.sql",
        "\n  AND state = 1",
        "",
        Case("a_stranded_key_is_resolved_a_lease_later"),
    ),
    mutant(
        "shorten.sql",
        "\n  AND lease_until > {now} + lease",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant("shorten_expired.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant("abandon.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("abandon.sql", "\n  AND owner = $2", "", Hammer),
    mutant("release.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("release.sql", "\n  AND owner = $2", "", Hammer),
    mutant("complete.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("complete.sql", "\n  AND owner = $2", "", Hammer),
    mutant("abandon.sql", "\n  AND state = 1", "", Hammer),
    mutant("release.sql", "\n  AND state = 1", "", Hammer),
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
    mutant("complete.sql", "\n  AND state IN (1, 2, 3)", "", Damage),
    mutant("complete.sql", "CASE state WHEN 2 THEN recording ELSE $3 END", "$3", Hammer),
    mutant("complete.sql", "state <> 2 AND ", "", Histories),
    mutant("complete.sql", " AND expires_at <= {now} THEN", " THEN", Histories),
    mutant(
        "complete.sql",
        "CASE WHEN state <> 2 AND expires_at <= {now} \
         THEN {now} + expires_at - first_seen\n        ELSE expires_at END",
        "expires_at",
        Histories,
    ),
    mutant(
        "take_over.sql",
        "WHERE id = $1",
        "WHERE true",
        Case("changes_to_one_key_of_an_owner_do_not_touch_another"),
    ),
    mutant("take_over.sql", "\n  AND state = 1", "", Case("one_of_takeover_and_completion_wins")),
    mutant("take_over.sql", "\n  AND attempt = $5", "", ConcurrentChange),
    mutant("take_over.sql", "\n  AND owner <> $3", "", Interleavings),
    mutant("take_over.sql", "\n  AND fingerprint = $2", "", ConcurrentChange),
    mutant("take_over.sql", "\n  AND abandoned = 0", "", ConcurrentChange),
    mutant(
        "take_over.sql",
        "\n  AND lease_until <= {now}",
        "",
        Case("one_of_takeover_and_renewal_wins"),
    ),
    mutant("take_over.sql", "\n  AND expires_at > {now}", "", Interleavings),
    mutant(
        "hold.sql",
        "WHERE id = $1",
        "WHERE true",
        Case("changes_to_one_key_of_an_owner_do_not_touch_another"),
    ),
    mutant("hold.sql", "\n  AND state = 1", "", Case("a_completion_is_not_lost_to_a_hold")),
    mutant("hold.sql", "\n  AND owner = $3", "", Interleavings),
    mutant("hold.sql", "\n  AND fingerprint = $2", "", ProvedBy(&Interleavings)),
    mutant(
        "hold.sql",
        "\n  AND lease_until <= {now}",
        "",
        Case("one_of_takeover_and_renewal_wins"),
    ),
    mutant(
        "hold.sql",
        "\n  AND (abandoned = 1 OR ($4 = 1 AND expires_at > {now}))",
        "",
        Interleavings,
    ),
    mutant("hold.sql", "$4 = 1 AND ", "", Interleavings),
    mutant("hold.sql", "($4 = 1 AND expires_at > {now})", "$4 = 1", Interleavings),
    mutant(
        "resolve_complete.sql",
        "WHERE id = $1",
        "WHERE true",
        Case("changes_to_one_key_of_an_owner_do_not_touch_another"),
    ),
    mutant(
        "resolve_complete.sql",
        "\n  AND owner = $2",
        "",
        Case("a_resolution_needs_the_owner_that_was_seen"),
    ),
    mutant(
        "resolve_complete.sql",
        "\n  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}))",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_complete.sql",
        "state = 1 AND ",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_complete.sql",
        " AND abandoned = 1",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_complete.sql",
        " AND lease_until <= {now}",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_release.sql",
        "WHERE id = $1",
        "WHERE true",
        Case("changes_to_one_key_of_an_owner_do_not_touch_another"),
    ),
    mutant(
        "resolve_release.sql",
        "\n  AND owner = $2",
        "",
        Case("a_resolution_needs_the_owner_that_was_seen"),
    ),
    mutant(
        "resolve_release.sql",
        "\n  AND (state = 3 OR (state = 1 AND abandoned = 1 AND lease_until <= {now}))",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_release.sql",
        "state = 1 AND ",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_release.sql",
        " AND abandoned = 1",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
    ),
    mutant(
        "resolve_release.sql",
        " AND lease_until <= {now}",
        "",
        Case("a_key_that_is_not_held_is_not_resolved"),
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
    mutant("purge.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant(
        "purge.sql",
        "\n      AND (state = 2 OR (state = 1 AND abandoned = 0 AND lease_until <= {now}))",
        "",
        Case("a_purge_spares_live_records"),
    ),
    mutant(
        "purge.sql",
        "(state = 1 AND abandoned",
        "(abandoned",
        Case("a_purge_spares_live_records"),
    ),
    mutant("purge.sql", " AND abandoned = 0", "", Case("a_purge_spares_live_records")),
    mutant("purge.sql", " AND lease_until <= {now}", "", Case("a_purge_spares_live_records")),
    mutant("keep.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant(
        "keep.sql",
        "\n      AND (state = 3 OR (state = 1 AND abandoned = 1))",
        "",
        Case(SPARED),
    ),
    mutant("keep.sql", "(state = 1 AND abandoned", "(abandoned", PurgeStatements),
    mutant("keep.sql", " AND abandoned = 1", "", Case(SPARED)),
    mutant("complete.sql", "\n    kept = 0,", "", Case(SPARED)),
    mutant("resolve_complete.sql", "\n    kept = 0,", "", Case(SPARED)),
    mutant("note.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("note.sql", "\n  AND owner = $2", "", Case("a_takeover_keeps_the_notes")),
    mutant("note.sql", "\n  AND state = 1", "", Case("a_completion_keeps_only_the_reference")),
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
    mutant("resumable.sql", "\n  AND id > $2", "", Case("every_abandoned_operation_is_on_a_page")),
    mutant(
        "resumable.sql",
        "\nORDER BY id",
        "\nORDER BY id DESC",
        Case("every_abandoned_operation_is_on_a_page"),
    ),
];
