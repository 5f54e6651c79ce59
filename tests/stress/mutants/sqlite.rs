//! The guards that only the SQLite statements have, and the detector of each.

use std::sync::LazyLock;

use super::{
    Mutant,
    detectors::DetectedBy::{
        Case, Hammer, Histories, HistoriesInTransactions, PurgeStatements, SyntaxError,
    },
    mutant, sql_cases, sql_operators,
    sql_steps::{self, SPARED},
};

/// The mutants of all statements.
pub(super) fn mutants() -> &'static [Mutant] {
    static ALL: LazyLock<Vec<Mutant>> = LazyLock::new(|| {
        let (placeholder, empty) = ("?", "x''");
        [
            MUTANTS,
            &sql_steps::mutants(placeholder),
            &sql_operators::mutants(placeholder, empty),
            &sql_cases::mutants(placeholder, empty, "claim.sql"),
        ]
        .concat()
    });
    &ALL
}

const SCANNED: &str = "every_record_is_on_a_page_of_a_scan";

const MUTANTS: &[Mutant] = &[
    mutant(
        "scan.sql",
        "AND (?4 = x'' OR instr(?4, r.principal) > 0)",
        "AND instr(?4, r.principal) > 0",
        Case(SCANNED),
    ),
    mutant("scan.sql", "AND (?5 = '' OR r.reference = ?5)", "AND r.reference = ?5", Case(SCANNED)),
    mutant(
        "claim.sql",
        "CASE ?6 WHEN 1 THEN clock.now END",
        "NULL",
        Case("what_can_be_held_is_watched"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n  AND expires_at <= {now}",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant("claim.sql", "WHERE true\nON", "ON", SyntaxError),
    mutant("claim.sql", "WHERE r.expires_at <= excluded.first_seen\n  AND (", "WHERE (", Hammer),
    mutant(
        "claim.sql",
        "r.state = 2 OR (r.state = 1 AND r.abandoned = 0 AND r.lease_until <= excluded.first_seen)",
        "true",
        HistoriesInTransactions,
    ),
    mutant(
        "claim.sql",
        "(r.state = 1 AND r.abandoned",
        "(r.abandoned",
        Case("one_of_takeover_and_abandonment_wins"),
    ),
    mutant("claim.sql", " AND r.abandoned = 0", "", HistoriesInTransactions),
    mutant(
        "claim.sql",
        " AND r.lease_until <= excluded.first_seen",
        "",
        Case("one_of_takeover_and_renewal_wins"),
    ),
    mutant("renew.sql", "WHERE r.id = lease.id\n  AND ", "WHERE ", Histories),
    mutant(
        "renew.sql",
        "\n  AND r.owner = lease.owner",
        "",
        Case("a_replaced_owner_can_do_nothing"),
    ),
    mutant(
        "purge.sql",
        "\n      AND expires_at <= {now}\n",
        "\n",
        Case("a_purge_spares_live_records"),
    ),
    mutant(
        "purge.sql",
        "WHERE id IN (",
        "WHERE true OR id IN (",
        Case("a_purge_spares_live_records"),
    ),
    mutant("keep.sql", "\n      AND expires_at <= {now}\n", "\n", PurgeStatements),
    mutant("keep.sql", "WHERE id IN (", "WHERE true OR id IN (", Case(SPARED)),
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
        "resumable.sql",
        "\n  AND operation = ?1",
        "",
        Case("operations_are_resumed_by_their_name"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n  AND state = 1",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n  AND abandoned = 0",
        "",
        Case("a_key_past_its_ttl_is_absent_a_lease_later"),
    ),
    mutant(
        "shorten_expired.sql",
        "\n  AND lease_until > {now} + lease",
        "",
        Case("a_purge_spares_live_records"),
    ),
    mutant("renew.sql", "\n  AND r.state = 1", "", Hammer),
];
