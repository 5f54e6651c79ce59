//! The cases, by subject.

use super::Case;

mod administering;
mod appending;
mod claiming;
mod claiming_in_transactions;
mod completing;
mod deciding;
mod expiring;
mod fencing;
mod holding;
mod listing;
mod noting;
mod racing;
mod renewing;
mod setting_back;
mod transacting;

macro_rules! cases {
    ($($module:ident { $($name:ident,)+ })+) => {
        /// All cases of the suite, for a test harness that runs them one by one.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($name), run: |fixture| Box::pin($module::$name(fixture)) },
        )+)+];
    };
}

cases! {
    claiming {
        the_first_claim_of_a_key_is_granted,
        a_claimed_key_is_in_flight_for_others,
        a_claim_that_is_sent_again_is_granted_again_with_a_whole_lease,
        another_fingerprint_is_a_mismatch_while_in_flight,
        another_fingerprint_is_a_mismatch_after_the_lease,
        another_fingerprint_is_a_mismatch_while_held,
        another_fingerprint_is_a_mismatch_once_completed,
        an_expired_lease_is_taken_over_as_the_next_attempt,
        a_takeover_keeps_what_the_first_claim_fixed,
        changes_to_one_key_do_not_touch_another,
        a_look_up_shows_the_record_and_changes_nothing,
        migrations_side_by_side_all_pass,
    }
    completing {
        a_recording_is_replayed,
        recordings_come_back_byte_for_byte,
        completing_again_passes_and_keeps_the_first_recording,
        a_late_owner_that_was_not_replaced_completes,
        a_released_key_is_as_if_it_had_never_been_claimed,
        an_abandoned_key_can_be_taken_over_at_once,
        a_completed_key_is_neither_renewed_nor_released_nor_abandoned,
    }
    fencing {
        a_stranger_can_do_nothing,
        a_replaced_owner_can_do_nothing,
        an_absent_key_has_no_owner,
        an_owner_of_one_key_does_not_own_another,
        changes_to_one_key_of_an_owner_do_not_touch_another,
        the_owner_of_an_expired_record_cannot_touch_the_next_one,
    }
    renewing {
        a_renewed_lease_lasts,
        an_expired_lease_that_was_not_taken_over_is_renewed,
        renewals_have_their_outcomes_in_order,
        renewing_no_leases_has_no_outcomes,
    }
    noting {
        a_record_says_what_it_is_about,
        a_claim_without_a_principal_has_none,
        the_first_completion_stays,
        a_note_replaces_what_it_names_and_adds_its_step,
        any_bytes_can_be_noted,
        a_completion_keeps_only_the_reference,
        a_takeover_keeps_the_notes,
        an_expired_key_starts_without_notes,
        after_the_point_of_no_return_the_key_is_held,
        an_attempt_abandoned_past_the_point_of_no_return_is_held,
        an_abandoned_operation_with_an_input_is_resumable,
        operations_are_resumed_by_their_name,
        every_abandoned_operation_is_on_a_page,
    }
    holding {
        an_abandoned_key_is_held,
        an_expired_lease_is_held_if_either_claim_says_hold,
        a_held_key_never_runs_again_even_after_its_ttl,
        a_late_owner_completes_a_held_key,
        the_owner_of_a_held_key_can_neither_renew_nor_release_it,
        a_held_key_is_resolved_by_a_recording,
        a_held_key_is_resolved_by_a_release,
        an_expired_lease_is_resolved_before_the_next_claim,
        a_key_that_is_not_held_is_not_resolved,
        a_resolution_needs_the_owner_that_was_seen,
        a_late_owner_is_fenced_by_a_resolution,
    }
    appending {
        a_history_tells_of_each_attempt_and_of_its_end,
        a_history_tells_what_an_operator_has_decided,
        a_history_starts_with_the_first_claim,
        a_history_keeps_its_latest_entries,
        an_entry_is_appended_to_an_expired_record,
        what_changes_nothing_has_no_entry,
        a_history_is_that_of_the_committed_transaction,
    }
    listing {
        what_can_be_held_is_watched,
        what_is_renewed_is_watched,
        a_key_that_starts_over_is_watched_if_it_can_be_held,
        a_claim_that_is_committed_alone_is_watched_if_it_can_be_held,
        a_watched_list_is_in_the_order_of_the_first_claims,
        a_list_has_what_its_filter_says,
        every_record_is_on_a_page_of_a_scan,
        a_record_is_found_by_the_beginning_of_its_id,
        a_list_shows_no_stored_bytes,
        a_position_of_another_list_is_an_error,
        records_are_counted,
    }
    administering {
        a_completed_record_is_removed,
        a_live_record_is_removed_only_if_it_may_be,
        an_expired_record_is_scanned_and_removed,
        a_key_that_is_held_past_its_ttl_is_live,
        bytes_are_replaced_if_they_are_those_that_were_seen,
        a_decision_is_logged,
        the_log_says_what_a_record_was_when_it_was_changed,
        a_decision_that_changes_nothing_is_not_logged,
        the_log_has_pages,
    }
    deciding {
        one_of_many_decisions_about_a_held_key_is_carried_out,
        a_removal_and_a_completion_come_one_after_the_other,
        a_replacement_undoes_no_other_change,
        pages_have_what_stays_while_other_records_change,
    }
    expiring {
        an_expired_record_makes_room_for_a_new_request,
        a_claim_in_flight_outlives_its_ttl,
        a_completion_after_the_ttl_is_replayed,
        a_resolution_after_the_ttl_is_replayed,
        a_claim_with_an_expired_lease_expires_with_its_ttl,
        a_purge_spares_live_records,
        a_purge_removes_expired_records,
        a_purge_removes_what_an_earlier_one_has_spared,
        a_purge_removes_at_most_its_limit,
    }
    racing {
        one_of_many_concurrent_claims_wins,
        one_of_many_concurrent_takeovers_wins,
        one_of_many_concurrent_claims_of_an_expired_key_wins,
        a_claim_sent_many_times_at_once_is_granted_to_its_owner,
        concurrent_takeovers_by_hold_never_run,
        one_of_takeover_and_completion_wins,
        one_of_takeover_and_release_wins,
        a_completion_is_not_lost_to_a_hold,
        one_of_takeover_and_abandonment_wins,
        one_of_late_completion_and_new_request_wins,
        one_of_takeover_and_renewal_wins,
        a_dropped_call_leaves_nothing_locked,
    }
    setting_back {
        a_lease_lasts_no_longer_than_its_length,
        an_owner_keeps_its_key_when_the_clock_is_set_back,
        the_length_of_a_lease_is_that_of_its_last_grant,
        an_abandoned_key_is_free_at_once_wherever_the_clock_is,
        a_shortening_touches_no_other_record,
        a_key_past_its_ttl_is_absent_a_lease_later,
        a_stranded_key_is_resolved_a_lease_later,
        a_shortening_does_not_undo_an_abandonment,
        a_claim_in_a_transaction_shortens_a_lease,
    }
    transacting {
        a_completion_counts_once_its_transaction_is_committed,
        a_completion_that_is_rolled_back_has_no_effect,
        a_replaced_owner_is_fenced_in_a_transaction_too,
        a_completion_and_its_commit_are_one_step,
        a_note_counts_once_its_transaction_is_committed,
        a_note_is_fenced_in_a_transaction_too,
    }
    claiming_in_transactions {
        a_claim_in_a_transaction_is_seen_once_it_is_committed,
        a_claim_in_a_transaction_that_is_rolled_back_has_no_effect,
        an_undo_keeps_the_claim,
        a_claim_in_a_transaction_can_end_held,
        a_claim_in_a_transaction_meets_what_is_committed,
        a_claim_in_a_transaction_starts_an_expired_key_over,
        a_claim_in_a_transaction_never_runs_a_held_key_again,
        a_claim_in_a_transaction_that_is_sent_again_is_granted_again,
        one_of_many_claims_in_transactions_wins,
    }
}
