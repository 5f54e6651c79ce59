//! A cluster: which node has which slots.

use std::{ops::RangeInclusive, sync::Weak, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use redis::{ConnectionInfo, Value, from_redis_value};
use tokio::time::{sleep, timeout};

use super::{
    address::{Endpoint, connect, endpoint},
    error::Failure,
    servers::Servers,
};

pub(super) const SLOTS: usize = 16_384;
/// How many nodes are asked at once. One that does not respond delays nothing.
const AT_ONCE: usize = 3;
/// How long a node may take to say who has which slots.
const RESPONDING: Duration = Duration::from_secs(1);
/// How often the slots are looked up when nothing calls for it.
const CALM: Duration = Duration::from_secs(5);
/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(400);

/// The slots of each master.
pub(super) type SlotRanges = Vec<(RangeInclusive<usize>, Endpoint)>;

/// Keeps the store's view of the cluster up to date until the store is dropped.
pub(super) async fn watch(servers: Weak<Servers>) {
    let Some(stale) = servers.upgrade().map(|servers| servers.stale()) else { return };
    loop {
        let _ = timeout(CALM.mul_f64(0.5 + fastrand::f64()), stale.notified()).await;
        let Some(sources) = servers.upgrade().map(|servers| servers.sources()) else { return };
        match discover(sources).await {
            Ok(ranges) => {
                let Some(servers) = servers.upgrade() else { return };
                servers.install(&ranges);
            }
            Err(failure) => {
                tracing::debug!(error = %failure, "no node of the cluster said who has which slots; retrying");
                stale.notify_one();
            }
        }
        sleep(PAUSE.mul_f64(0.5 + fastrand::f64())).await;
    }
}

/// Queries the nodes in random order, a few at once, until one knows a master for every slot. If none
/// does, returns the view that has the most slots.
///
/// # Errors
/// The last failure where no node knows of any slot.
pub(super) async fn discover(mut sources: Vec<ConnectionInfo>) -> Result<SlotRanges, Failure> {
    fastrand::shuffle(&mut sources);
    let (mut failed, mut most) = (Failure::NoMaster, SlotRanges::new());
    for some in sources.chunks(AT_ONCE) {
        let asked = some
            .iter()
            .map(|source| async move { timeout(RESPONDING, slots_of(source)).await.unwrap_or(Err(Failure::Slow)) });
        let mut asked = asked.collect::<FuturesUnordered<_>>();
        while let Some(view) = asked.next().await {
            match view {
                Ok(ranges) if covered(&ranges) >= SLOTS => return Ok(ranges),
                // The node has not met all the others yet, or some slots have no master.
                Ok(ranges) if covered(&ranges) > covered(&most) => most = ranges,
                Ok(_) => {}
                Err(failure) => failed = failure,
            }
        }
    }
    if most.is_empty() { Err(failed) } else { Ok(most) }
}

/// How many slots have a master.
fn covered(ranges: &SlotRanges) -> usize {
    ranges.iter().map(|(range, _)| range.clone().count()).sum()
}

async fn slots_of(source: &ConnectionInfo) -> Result<SlotRanges, Failure> {
    let mut node = connect(source, None, RESPONDING).await?;
    let slots: Value = redis::cmd("CLUSTER")
        .arg("SLOTS")
        .query_async(&mut node)
        .await
        .map_err(|error| Failure::from(error).lacking("CLUSTER|SLOTS"))?;
    let ranges = ranges(slots, &endpoint(source).0)?;
    // A node that was added, and has not met the others yet.
    if ranges.is_empty() { Err(Failure::NoMaster) } else { Ok(ranges) }
}

/// Reads what `CLUSTER SLOTS` returns: for each range its first and last slot, its master, and its
/// replicas.
fn ranges(slots: Value, asked: &str) -> Result<SlotRanges, Failure> {
    let slots: Vec<Vec<Value>> = from_redis_value(slots).map_err(Failure::reply)?;
    let mut ranges = SlotRanges::new();
    for range in slots {
        let mut parts = range.into_iter();
        let (Some(first), Some(last), Some(master)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Failure::Unexpected);
        };
        let [first, last] = [from_redis_value::<usize>(first), from_redis_value::<usize>(last)];
        let mut master = from_redis_value::<Vec<Value>>(master).map_err(Failure::reply)?.into_iter();
        let (Some(host), Some(port)) = (master.next(), master.next()) else { return Err(Failure::Unexpected) };
        let host: Option<String> = from_redis_value(host).map_err(Failure::reply)?;
        let port: u16 = from_redis_value(port).map_err(Failure::reply)?;
        let host = match host.as_deref() {
            // The node does not know its own address; it is where it was asked.
            None | Some("") => asked.to_owned(),
            // It does not know another's.
            Some("?") => continue,
            Some(host) => host.to_owned(),
        };
        ranges.push((first.map_err(Failure::reply)?..=last.map_err(Failure::reply)?, (host, port)));
    }
    Ok(ranges)
}

/// The slot of a key: CRC-16/XMODEM of what stands between its first braces, or of all of it,
/// modulo 16,384.
pub(super) fn slot(key: &[u8]) -> u16 {
    let crc = tag(key).unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    });
    crc % 16_384
}

/// What stands between the first braces of a key, if anything does.
pub(super) fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = key.get(open + 1..)?;
    rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        // From the cluster specification, and `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"a{foo}b{bar}"), 12182);
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn a_master_without_an_address_is_where_it_was_asked() {
        let text = |text: &str| Value::BulkString(text.into());
        let range = |first, last, host: Value, port| {
            Value::Array(vec![
                Value::Int(first),
                Value::Int(last),
                Value::Array(vec![host, Value::Int(port), text("id")]),
            ])
        };
        let slots = Value::Array(vec![
            range(0, 99, text("10.0.0.1"), 7000),
            range(100, 199, text(""), 7001),
            range(200, 299, Value::Nil, 7002),
            range(300, 399, text("?"), 7003),
        ]);
        let at = |host: &str, port| (host.to_owned(), port);
        let expected =
            vec![(0..=99, at("10.0.0.1", 7000)), (100..=199, at("asked", 7001)), (200..=299, at("asked", 7002))];
        assert_eq!(ranges(slots, "asked").unwrap(), expected);
        assert!(ranges(Value::Array(vec![Value::Array(vec![Value::Int(1)])]), "asked").is_err());
        assert!(ranges(Value::Okay, "asked").is_err());
    }
}
