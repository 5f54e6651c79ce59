//! Reading a record.

use bytes::Bytes;
use redis::Value;

use crate::{
    encoding::{decode, with_absolute_times},
    engine::Engine,
    error::CallFailure,
    net::{ConnectionRole, ConnectionRoute, SendAgain},
};
use idempotent_core::{RecordId, clock::Timestamp, protocol::Snapshot};

/// A record that was read, with absolute times, and the value from which it was decoded.
pub(crate) struct StoredValue {
    pub(crate) snapshot: Snapshot,
    pub(crate) value: Bytes,
}

impl StoredValue {
    /// Whether the record may be in the watch list: it has absolute times.
    pub(crate) fn may_be_watched(&self) -> bool {
        self.value.get(67..75).is_some_and(|first_seen| first_seen != [0; 8])
    }
}

/// Reads a record that has not expired.
pub(crate) async fn look_up(
    engine: &Engine,
    id: &RecordId,
) -> Result<Option<Snapshot>, CallFailure> {
    Ok(read_on(engine, ConnectionRole::Requests, &engine.key(id)).await?.0)
}

pub(crate) async fn read_on(
    engine: &Engine,
    role: ConnectionRole,
    key: &[u8],
) -> Result<(Option<Snapshot>, ConnectionRoute), CallFailure> {
    let (found, route) = value_on(engine, role, key).await?;
    let snapshot = found.map(|found| found.snapshot);
    Ok((snapshot.filter(|found| !found.record.is_expired(found.at)), route))
}

/// Reads a record, which may have expired, and its encoded value.
pub(crate) async fn value_on(
    engine: &Engine,
    role: ConnectionRole,
    key: &[u8],
) -> Result<(Option<StoredValue>, ConnectionRoute), CallFailure> {
    let (found, route) =
        engine.router.call((role, SendAgain::Once), &engine.scripts.look_up, &[key], &[]).await?;
    let Value::Array(found) = found else {
        return if found == Value::Nil { Ok((None, route)) } else { Err(CallFailure::Unexpected) };
    };
    let [Value::Int(at), Value::BulkString(value), Value::Int(expires)] = triple(found)? else {
        return Err(CallFailure::Unexpected);
    };
    let [at, expires] =
        [at, expires].map(|time| Timestamp::from_millis(u64::try_from(time).unwrap_or(0)));
    let value = Bytes::from(value);
    let record = with_absolute_times(decode(value.clone())?, expires);
    Ok((Some(StoredValue { snapshot: Snapshot::new(record, at), value }), route))
}

fn triple(values: Vec<Value>) -> Result<[Value; 3], CallFailure> {
    values.try_into().map_err(|_| CallFailure::Unexpected)
}
