//! Renewing leases.

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::{
    engine::Engine,
    error::CallFailure,
    guards::{RENEW_IN_FLIGHT, RENEW_OWNER, RENEW_STAYS},
    item::{Stored, Tag, bytes, decode, number, text},
    table::{Former, Table},
};
use idempotent_core::{
    clock::millis,
    protocol::{Fence, RenewOutcome, Renewal},
    transition::{self, Change},
};

use super::decided::{DECISIONS, replace};

/// How many leases are renewed at the same time.
const CONCURRENT: usize = 64;
/// The time for a round of renewals, as a fraction of the shortest lease. It is at least most of
/// the time limit of one request; the runtime waits a little longer.
const LEASE_FRACTION: u32 = 8;
/// How much longer than its lease a record stays in the table, in seconds.
const MARGIN: u64 = 300;

/// Renews all leases, each by one write. One that takes too long does not delay the others.
pub(crate) async fn renew(
    engine: &Engine,
    leases: &[Renewal],
) -> Result<Vec<RenewOutcome>, CallFailure> {
    let Some(shortest) = leases.iter().map(|renewal| renewal.extend).min() else {
        return Ok(Vec::new());
    };
    let Table { response_timeout, call_timeout, .. } = engine.table;
    let within = (shortest / LEASE_FRACTION).max(response_timeout * 3 / 4).min(call_timeout);
    let until = Instant::now() + within;
    let mut results = Vec::new();
    for leases in leases.chunks(CONCURRENT) {
        let renewals = leases
            .iter()
            .map(|renewal| timeout_at(until, renew_one(engine, renewal, Watch::FromNowOn)));
        results.extend(join_all(renewals).await);
    }
    let (mut outcomes, mut failed) = (Vec::new(), None);
    for result in results {
        outcomes.push(match result {
            Ok(Ok(fence)) => fence.into(),
            Ok(Err(failure)) => {
                failed = Some(failure);
                RenewOutcome::Unknown
            }
            Err(_) => {
                failed = Some(CallFailure::ResponseTimeout);
                RenewOutcome::Unknown
            }
        });
    }
    match failed {
        Some(failure) if outcomes.iter().all(|outcome| *outcome == RenewOutcome::Unknown) => {
            Err(failure)
        }
        Some(failure) => {
            let cause = std::error::Error::source(&failure);
            tracing::warn!(error = %failure, cause, "some leases could not be renewed; retrying");
            Ok(outcomes)
        }
        None => Ok(outcomes),
    }
}

/// Whether a lease that is renewed makes its record watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    FromNowOn,
    AsBefore,
}

/// Renews a lease: one write.
pub(super) async fn renew_one(
    engine: &Engine,
    renewal: &Renewal,
    watch: Watch,
) -> Result<Fence, CallFailure> {
    let (id, owner) = (&renewal.lease.id, renewal.lease.owner);
    let now = engine.now(id).await?;
    let until = now.at.after(renewal.extend);
    let values = vec![
        (":o", bytes(owner.as_bytes())),
        (":in_flight", number(1)),
        (":soon", number(until.as_millis() / 1_000 + MARGIN)),
        (":lease", number(millis(renewal.extend))),
        (":until", number(until.as_millis())),
        (":shard", text(engine.keys.shard_of(id))),
        (":tag", Tag::random().value()),
    ];
    let watched = if watch == Watch::FromNowOn { ", #held = :shard" } else { "" };
    let update = format!("SET #lease = :lease, #until = :until, #tag = :tag{watched}");
    let guards = [RENEW_OWNER, RENEW_IN_FLIGHT, RENEW_STAYS];
    let expression = engine.expression(Some(update), &guards, values);
    match engine.table.update(&engine.keys.record(id), expression, Former::Unused).await? {
        Ok(_) => Ok(Fence::Passed),
        Err(refused) => {
            let stored = refused.item.as_ref().map(decode).transpose()?;
            renew_decided(engine, (renewal, watch), stored).await
        }
    }
}

/// Renews a lease that lasts until the table would remove the record.
async fn renew_decided(
    engine: &Engine,
    (renewal, watch): (&Renewal, Watch),
    mut stored: Option<Stored>,
) -> Result<Fence, CallFailure> {
    let id = &renewal.lease.id;
    for _ in 0..DECISIONS {
        let now = engine.now(id).await?;
        let record = stored.as_ref().map(|stored| &stored.record);
        let (owner, extend) = (renewal.lease.owner, renewal.extend);
        let (change, fence) = transition::renew(record, owner, extend, now.at);
        let (Change::Put(record), Some(seen)) = (change, &stored) else { return Ok(fence) };
        let contents = seen.contents.clone();
        let seen = Stored { watched: seen.watched || watch == Watch::FromNowOn, ..seen.clone() };
        match replace(engine, id, &seen, record, contents).await? {
            Ok(()) => return Ok(fence),
            Err(changed) => stored = changed,
        }
    }
    Err(CallFailure::Contended)
}
