//! The guards that the statements of all SQL stores have in common, and the detector of each.

use super::{
    Mutant,
    detectors::DetectedBy::{
        Case, ConcurrentChange, Damage, Hammer, Histories, Interleavings, ProvedBy, PurgeStatements,
    },
    mutant,
};

/// The case for marks on records that a purge must remove later.
pub(super) const SPARED: &str = "a_purge_removes_what_an_earlier_one_has_spared";

/// The mutants of a store's statements, whose placeholders begin with `placeholder`.
pub(super) fn mutants(placeholder: &str) -> Vec<Mutant> {
    written(MUTANTS, placeholder, "")
}

/// Those of a statement that starts an expired key over, and does nothing else.
pub(super) fn of_starting_over(placeholder: &str) -> Vec<Mutant> {
    written(STARTING_OVER, placeholder, "")
}

/// The mutants as a store writes them whose placeholders begin with `placeholder`, and which writes
/// no bytes as `empty`.
pub(super) fn written(mutants: &[Mutant], placeholder: &str, empty: &str) -> Vec<Mutant> {
    let own = |text: &'static str| -> &'static str {
        text.replace('$', placeholder).replace("EMPTY", empty).leak()
    };
    let mutants = mutants.iter().map(|mutant| Mutant {
        guard: own(mutant.guard),
        replacement: own(mutant.replacement),
        ..*mutant
    });
    mutants.collect()
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
    mutant("complete.sql", "\n  AND state BETWEEN 1 AND 3", "", Damage),
    mutant("complete.sql", "state <> 2 AND ", "", Histories),
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
    mutant("purge.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant(
        "purge.sql",
        "(state = 1 AND abandoned",
        "(abandoned",
        Case("a_purge_spares_live_records"),
    ),
    mutant("purge.sql", " AND abandoned = 0", "", Case("a_purge_spares_live_records")),
    mutant("keep.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant("keep.sql", "(state = 1 AND abandoned", "(abandoned", PurgeStatements),
    mutant("keep.sql", " AND abandoned = 1", "", Case(SPARED)),
    mutant("note.sql", "WHERE id = $1", "WHERE true", Histories),
    mutant("note.sql", "\n  AND owner = $2", "", Case("a_takeover_keeps_the_notes")),
    mutant("note.sql", "\n  AND state = 1", "", Case("a_completion_keeps_only_the_reference")),
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

const STARTING_OVER: &[Mutant] = &[
    mutant(
        "start_over.sql",
        "WHERE r.id = $1",
        "WHERE true",
        Case("changes_to_one_key_of_an_owner_do_not_touch_another"),
    ),
    mutant("start_over.sql", "\n  AND r.owner = $9", "", ProvedBy(&Interleavings)),
    mutant(
        "start_over.sql",
        "\n  AND r.expires_at <= clock.now",
        "",
        Case("one_of_late_completion_and_new_request_wins"),
    ),
    mutant(
        "start_over.sql",
        "\n  AND (r.state = 2 OR (r.state = 1 AND r.abandoned = 0 AND r.lease_until <= clock.now))",
        "",
        Case("one_of_takeover_and_renewal_wins"),
    ),
    mutant(
        "start_over.sql",
        "(r.state = 1 AND r.abandoned",
        "(r.abandoned",
        Case("one_of_takeover_and_abandonment_wins"),
    ),
    mutant("start_over.sql", " AND r.abandoned = 0", "", Interleavings),
    mutant(
        "start_over.sql",
        " AND r.lease_until <= clock.now",
        "",
        Case("one_of_takeover_and_renewal_wins"),
    ),
];
