//! The key of a run: its record as the store has it, and where an operator resolves it.

use std::{
    error::Error,
    path::PathBuf,
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use idempotent_actix::{
    Idempotency, Key, RecordId,
    scope::ScopeKey as _,
    store::{RecordState, Snapshot, Timestamp},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    demo::{CONSOLE, Side, checkout::OPERATION, visit::Visit, worker},
    user::User,
};

/// How often the record is read while its operation is in flight, and otherwise.
const BUSY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_millis(500);

/// The store of all keys of the page, which the workers open too.
pub(crate) struct Keys {
    pub(crate) idempotency: Idempotency,
    directory: Mutex<Option<TempDir>>,
}

impl Keys {
    pub(crate) async fn open() -> Result<Self, Box<dyn Error>> {
        let directory = TempDir::with_prefix("payments-demo-")?;
        let idempotency = worker::open_store(directory.path()).await?;
        Ok(Self { idempotency, directory: Mutex::new(Some(directory)) })
    }

    /// `None` after the end of the page.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let directory = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        directory.as_ref().map(|directory| directory.path().to_owned())
    }

    /// Removes the files.
    pub(crate) fn remove(&self) {
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, String> {
        self.idempotency.find_record(id).await.map_err(|cause| cause.to_string())
    }
}

/// The id of the record of a run's key. `None` if there is a newer run.
fn id_of(visit: &Visit, number: u64) -> Option<RecordId> {
    let key = visit.with_run(number, |run| run.key.clone())?;
    let scope = User::named(visit.user(number)).scope_key()?;
    visit.keys.idempotency.record_id(&scope, OPERATION, &Key::from_text(key).ok()?).ok()
}

/// Where an operator resolves a held key. The link fills in what the bank's books say.
fn console(visit: &Visit, number: u64, id: &RecordId) -> String {
    let charges = visit.with_run(number, |run| run.books(Side::Guarded).charges.clone());
    let record = format!("{CONSOLE}/records/{id}");
    let charge = charges.unwrap_or_default().into_iter().next();
    let body = charge.and_then(|charge| serde_json::to_string(&charge).ok());
    let filled = body.and_then(|body| {
        let fields =
            [("status", "201"), ("content_type", "application/json"), ("body", body.as_str())];
        serde_urlencoded::to_string(fields).ok()
    });
    filled.map_or(record.clone(), |filled| format!("{record}?{filled}"))
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
    let id = id_of(visit, number).ok_or("there is a newer run")?;
    Ok(describe(visit.keys.look_up(&id).await?.as_ref()).0)
}

/// Reports the changes of the record, until the run ends.
pub(crate) async fn watch(visit: Weak<Visit>, number: u64) {
    let mut last = None;
    while let Some(visit) = visit.upgrade()
        && let Some(id) = id_of(&visit, number)
    {
        if let Ok(found) = visit.keys.look_up(&id).await {
            let (mut fields, changing) = describe(found.as_ref());
            if last.replace(changing) != Some(changing) {
                if changing.0 == "held"
                    && let Some(fields) = fields.as_object_mut()
                {
                    fields.insert("console".to_owned(), console(&visit, number, &id).into());
                }
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
