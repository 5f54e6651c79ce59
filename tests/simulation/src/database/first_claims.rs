//! Completions that compare the value of a first claim.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    History, Lease, Notes, Record, RecordState, clock::millis, history::Kind, protocol::Claim,
    transition::Event,
};
use idempotent_redis::internals::encode_redis_claim;

use super::{Database, Reply, State};

impl Database {
    /// Completes a claim whose value is the expected one. The key then expires after this time,
    /// whatever the record says.
    pub(super) fn complete_first(
        &self,
        state: &mut State,
        lease: &Lease,
        recording: &Bytes,
        (expected, left): (&Bytes, Duration),
    ) -> Reply {
        let claimed = state.records.get(&lease.id);
        if claimed.and_then(value_of).is_none_or(|value| value[..] != expected[..]) {
            return Reply::Changed;
        }
        // Of the claim: the step prolongs a record whose time is over by the clock of the database,
        // which may have been set forward.
        let ttl = claimed.map(|record| record.expires_at.duration_since(record.first_seen));
        let outcome = self.step(state, &lease.id, &Event::Complete(lease.owner, recording));
        let (now, granted) = (self.now_of(state), state.granted.get(lease.owner.as_bytes()));
        let passed = granted.map(|granted| self.world.elapsed().saturating_sub(*granted));
        if let (Some(record), Some(ttl)) = (state.records.get_mut(&lease.id), ttl) {
            record.expires_at = now.after(left);
            self.world.oracle(|oracle| oracle.kept(ttl, passed, left));
        }
        Reply::Step(outcome)
    }
}

/// The value in Redis of a record that no step has changed since its first claim.
fn value_of(record: &Record) -> Option<Vec<u8>> {
    let unchanged = record.state == RecordState::InFlight
        && record.attempt == 1
        && record.lease_until == record.first_seen.after(record.lease)
        && record.notes == Notes::default()
        && record.history == History::EMPTY.with(Kind::Claimed, record.first_seen);
    let ttl = record.expires_at.duration_since(record.first_seen);
    let mut claim = Claim::new(record.fingerprint, record.owner)
        .with_lease(record.lease)
        .with_ttl(Duration::from_millis(millis(ttl)))
        .with_abandoned(record.abandoned);
    (claim.operation, claim.principal) = (record.operation.clone(), record.principal);
    unchanged.then(|| encode_redis_claim(&claim))
}
