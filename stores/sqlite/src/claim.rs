//! Claims by lease, and the renewal of leases.

use std::collections::HashSet;

use self::batches::write_in_turn;
use crate::{
    connect::connections::Access,
    engine::{Engine, group::WriteStep},
    error::NAME,
};
use idempotent_core::{
    Lease, Record, RecordId, RecordState, StoreError,
    protocol::{Claim, ClaimOutcome, RenewOutcome, Renewal},
    transition::{self, Change},
};
use idempotent_sql::ClaimContention;

pub(crate) mod batches;

/// How often a claim starts again because a concurrent claim changed the record first.
const MAX_ROUNDS: usize = 3;

pub(crate) async fn claim(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
) -> Result<ClaimOutcome, StoreError> {
    for _ in 0..MAX_ROUNDS {
        let (record, now) = engine.existing(id).await?;
        let now = engine.waiting.effective_time(record.as_ref(), now).await;
        let (change, outcome) = transition::claim(record.as_ref(), claim, now);
        let Change::Put(new) = change else {
            return Ok(outcome);
        };
        let seen = record.as_ref().filter(|record| !record.is_expired(now));
        // Between the read and the write another process may take the key; the statement, which
        // repeats every guard and names the attempt that was read, then changes nothing (case
        // `one_of_many_concurrent_takeovers_wins`).
        if write(engine, id, claim, seen, &new).await? {
            return Ok(outcome);
        }
    }
    Err(StoreError::transient(NAME, "claim", ClaimContention))
}

/// Writes the record that the state machine has decided on; returns `false` if the record has
/// changed since it was read.
async fn write(
    engine: &Engine,
    id: &RecordId,
    claim: &Claim,
    seen: Option<&Record>,
    new: &Record,
) -> Result<bool, StoreError> {
    let Some(seen) = seen else {
        return write_in_turn(engine, "claim", WriteStep::Claim(*id, claim.clone())).await;
    };
    let lease = Lease { id: *id, owner: seen.owner };
    let is_sent_again = new.owner == claim.owner && seen.owner == claim.owner;
    if is_sent_again && new.state == RecordState::InFlight {
        let renewed = renew(engine, "claim", &[Renewal::new(lease, claim.lease)]).await?;
        return Ok(renewed.contains(&RenewOutcome::Renewed));
    }
    let statement = || engine.statements.claim_seen(id, claim, (seen, &lease), new);
    Ok(engine.write("claim", statement).await? == 1)
}

pub(crate) async fn renew(
    engine: &Engine,
    operation: &'static str,
    leases: &[Renewal],
) -> Result<Vec<RenewOutcome>, StoreError> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    // The renewer sends it again after a sixth of a lease.
    let longest = leases.iter().map(|renewal| renewal.extend).max().unwrap_or_default();
    let rows = engine.rows(Access::Write, operation, || engine.statements.renew(leases));
    let rows = engine.as_owner(operation, longest / 6, rows).await?;
    let renewed =
        rows.iter().map(idempotent_sql::lease_from_row).collect::<Result<HashSet<_>, _>>();
    let renewed = renewed.map_err(|source| StoreError::unreadable(NAME, operation, source))?;
    let outcome = |renewal: &Renewal| {
        if renewed.contains(&renewal.lease) { RenewOutcome::Renewed } else { RenewOutcome::Fenced }
    };
    Ok(leases.iter().map(outcome).collect())
}
