//! Renewing leases.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    runtime::Handle,
    sync::mpsc::unbounded_channel,
    time::{Instant, timeout_at},
};

use crate::{
    encoding::redis_millis,
    engine::{Beside, Engine},
    error::{CallFailure, LOST},
    lua::Arg,
    net::{ConnectionRole, SendAgain},
};
use idempotent_core::protocol::{RenewOutcome, Renewal};

/// The minimum time for a round of renewals, and its maximum as a fraction of the shortest lease.
/// The runtime waits a little longer.
const MIN_RENEWAL_WAIT: Duration = Duration::from_millis(750);
const LEASE_FRACTION: u32 = 8;

/// Renews all leases at once. A server that does not respond does not delay the others.
///
/// The calls run in a separate task, so that a command that was sent is not cancelled when the
/// time is over, and an unresponsive server is detected. It is not sent again after that: it
/// could revive a lease that its owner has abandoned since.
pub(crate) async fn renew(
    engine: &Arc<Engine>,
    leases: &[Renewal],
) -> Result<Vec<RenewOutcome>, CallFailure> {
    let Some(shortest) = leases.iter().map(|renewal| renewal.extend).min() else {
        return Ok(Vec::new());
    };
    let response = engine.router.response_timeout;
    let until = Instant::now() + (shortest / LEASE_FRACTION).max(MIN_RENEWAL_WAIT).min(response);
    let (done, mut results) = unbounded_channel();
    let (engine, renewals) = (engine.clone(), leases.to_vec());
    Handle::try_current().map_err(|_| CallFailure::NoRuntime)?.spawn(async move {
        let engine = &engine;
        let calls = renewals.iter().enumerate().map(|(number, renewal)| {
            let done = done.clone();
            async move {
                let _ = done.send((number, renew_one(engine, renewal, until).await));
            }
        });
        join_all(calls).await;
    });
    let (mut outcomes, mut any, mut failed) =
        (vec![RenewOutcome::Unknown; leases.len()], false, None);
    while let Ok(Some((number, result))) = timeout_at(until, results.recv()).await {
        match (result, outcomes.get_mut(number)) {
            (Ok(renewed), Some(outcome)) => (any, *outcome) = (true, renewed),
            (Err(failure), _) if failed.is_none() || failure.is_transient() => {
                failed = Some(failure)
            }
            _ => {}
        }
    }
    if !any {
        return Err(failed.unwrap_or(CallFailure::ResponseTimeout));
    }
    if let Some(failure) = failed {
        let cause = std::error::Error::source(&failure);
        tracing::warn!(error = %failure, cause, "some leases could not be renewed; retrying");
    }
    Ok(outcomes)
}

/// Renews one lease; sends it once more if its connection is lost before `until`.
async fn renew_one(
    engine: &Engine,
    renewal: &Renewal,
    until: Instant,
) -> Result<RenewOutcome, CallFailure> {
    let extend = [Arg::Number(redis_millis(renewal.extend))];
    let how = (ConnectionRole::Renewals, SendAgain::Never);
    let step = (&renewal.lease, Beside::ListIfTogether);
    let renew = || engine.call_fenced(how, &engine.scripts.renew, step, &extend);
    let renewed = match renew().await {
        Err(failure) if failure.class() == LOST && Instant::now() < until => renew().await,
        result => result,
    };
    renewed.map(|(fence, _)| fence.into())
}
