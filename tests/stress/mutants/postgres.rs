//! The guards of the Postgres statements, and the detector of each.

use std::sync::LazyLock;

use super::{
    Mutant,
    detectors::DetectedBy::{
        BlockedReplay, Case, ConcurrentChange, Damage, Expiry, Hammer, Histories,
        HistoriesInTransactions, Interleavings, ProvedBy, PurgeStatements, SyntaxError,
    },
    mutant,
};

/// The case for marks on records that a purge must remove later.
const SPARED: &str = "a_purge_removes_what_an_earlier_one_has_spared";

pub(super) mod batch_statements;
mod notes;

/// All of them.
pub(super) fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| [MUTANTS, notes::MUTANTS].concat());
    &ALL
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
    mutant(
        "shorten_expired.sql",
        "\n      AND expires_at <= (SELECT {now})",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
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
    mutant(
        "shorten_expired.sql",
        "WHERE r.id = longer.id",
        "WHERE true",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
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
        "claim.sql",
        "WHERE r.id = $1",
        "WHERE true",
        Case("changes_to_one_key_do_not_touch_another"),
    ),
    mutant("claim.sql", "WHERE NOT EXISTS (SELECT FROM seen)\n      AND ", "WHERE ", BlockedReplay),
    mutant("claim.sql", "\n      AND pg_try_advisory_xact_lock($9 # {locked_table})", "", Hammer),
    mutant("claim.sql", "ON CONFLICT (id) DO NOTHING", "", Hammer),
    mutant("insert.sql", "WHERE true", "WHERE false", HistoriesInTransactions),
    mutant("insert_completed.sql", "WHERE true", "", SyntaxError),
    mutant(
        "insert_completed.sql",
        "CASE WHEN $8 + $5 <= clock.now THEN clock.now + $5 ELSE $8 + $5 END",
        "$8 + $5",
        Expiry,
    ),
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
        "renew.sql",
        "    WHERE r.owner = lease.owner\n      AND ",
        "    WHERE ",
        Case("a_replaced_owner_can_do_nothing"),
    ),
    mutant("renew.sql", "\n      AND r.state = 1", "", Hammer),
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
        "\n      AND expires_at <= (SELECT {now})",
        "",
        Case("a_purge_spares_live_records"),
    ),
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
    mutant(
        "purge.sql",
        "WHERE r.id = expired.id",
        "WHERE true",
        Case("a_purge_removes_at_most_its_limit"),
    ),
    mutant("keep.sql", "WHERE kept = 0", "WHERE true", PurgeStatements),
    mutant("keep.sql", "\n      AND expires_at <= (SELECT {now})", "", PurgeStatements),
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
    mutant("keep.sql", "WHERE r.id = held.id", "WHERE true", Case(SPARED)),
];
