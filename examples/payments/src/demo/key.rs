//! The key of a run: its record as the store has it, and how an operator resolves it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use actix_web::HttpResponse;
use idempotent_actix::{
    Idempotency, Key, RecordId, recording,
    scope::ScopeKey as _,
    store::{Actor, RecordState, ResolveOutcome, Snapshot, Timestamp},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    demo::{Side, checkout::OPERATION, visit::Visit},
    user::User,
};

/// How often the record is read while its operation is in flight, and otherwise.
const BUSY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(500);

/// The key of a run, and where its record is.
struct RunKey {
    keys: Idempotency,
    id: RecordId,
}

impl RunKey {
    /// `None` if there is a newer run.
    fn of(visit: &Visit, number: u64) -> Option<Self> {
        let key = visit.with_run(number, |run| run.key.clone())?;
        let (keys, key) = (visit.keys()?, Key::from_text(key).ok()?);
        let scope = User::named(visit.user(number)).scope_key()?;
        let id = keys.record_id(&scope, OPERATION, &key).ok()?;
        Some(Self { keys, id })
    }

    async fn look_up(&self) -> Result<Option<Snapshot>, String> {
        self.keys.find_record(&self.id).await.map_err(|cause| cause.to_string())
    }
}

/// What the page shows of a record. The second value is the same while nothing changes but time.
fn describe(found: Option<&Snapshot>) -> (Value, (&'static str, u32, Timestamp)) {
    let Some(Snapshot { record, at, .. }) = found else {
        return (json!({ "state": "absent" }), ("absent", 0, Timestamp::EPOCH));
    };
    let state = match record.state {
        _ if record.is_held(*at) => "held",
        RecordState::Completed(_) => "completed",
        RecordState::InFlight | RecordState::Held => "in_flight",
    };
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let fields = json!({
        "state": state,
        "attempt": record.attempt,
        "status": record.status,
        "lease": millis(record.lease),
        "lease_left": millis(record.lease_left(*at)),
        "ttl": millis(record.expires_at.duration_since(record.first_seen)),
        "ttl_left": millis(record.expires_at.duration_since(*at)),
    });
    (fields, (state, record.attempt, record.lease_until))
}

/// The record of a run, as the store has it now.
pub(crate) async fn record(visit: &Visit, number: u64) -> Result<Value, String> {
    let key = RunKey::of(visit, number).ok_or("there is a newer run")?;
    Ok(describe(key.look_up().await?.as_ref()).0)
}

/// Reports the changes of the record, until the run ends.
pub(crate) async fn watch(visit: Weak<Visit>, number: u64) {
    let mut last = None;
    while let Some(visit) = visit.upgrade()
        && let Some(key) = RunKey::of(&visit, number)
    {
        if let Ok(found) = key.look_up().await {
            let (fields, changing) = describe(found.as_ref());
            if last.replace(changing) != Some(changing) {
                visit.report(number, "key", fields);
            }
        }
        let pause = match last {
            Some(("in_flight", ..)) => BUSY,
            _ => IDLE,
        };
        let _ = timeout(pause, visit.key_changes.notified()).await;
    }
}

/// Resolves a held key as an operator does who has looked at the bank's books: completes it with
/// the charge that is there, or releases it.
pub(crate) async fn resolve(visit: &Arc<Visit>, number: u64) -> Result<Value, String> {
    let key = RunKey::of(visit, number).ok_or("there is a newer run")?;
    let Some(found) = key.look_up().await?.filter(|found| found.record.is_held(found.at)) else {
        return Err("the key is not held".to_owned());
    };
    let charges = visit.with_run(number, |run| run.books(Side::Guarded).charges.clone());
    let charge = charges.unwrap_or_default().into_iter().next();
    let recording = match &charge {
        None => None,
        Some(charge) => {
            let response = HttpResponse::Created().json(charge);
            let recording = recording::from_response(response).await;
            Some(recording.map_err(|cause| cause.to_string())?)
        }
    };
    let actor = Actor::new("visitor", "as the bank's books say");
    match key.keys.resolve(&key.id, &found, recording.as_ref(), &actor).await {
        Ok(ResolveOutcome::Resolved) => {
            let fields = json!({ "charge": charge.map(|charge| charge.charge) });
            visit.report(number, "resolved", fields.clone());
            visit.key_changes.notify_one();
            Ok(fields)
        }
        Ok(ResolveOutcome::Conflict) => Err("the record has changed; try again".to_owned()),
        Err(cause) => Err(cause.to_string()),
    }
}
