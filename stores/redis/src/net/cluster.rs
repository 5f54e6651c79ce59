//! Which node of a cluster has which slots.

use std::{ops::RangeInclusive, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use redis::{ConnectionInfo, FromRedisValue, Value, from_redis_value};

use super::{
    address::{Endpoint, endpoint},
    wire::Wire,
};
use crate::error::CallFailure;

pub(crate) const SLOTS: usize = 16_384;
/// How many nodes are queried at the same time, so that an unresponsive one delays nothing.
const AT_ONCE: usize = 3;
/// How long a node may take to open a connection, and to report the slots while no byte arrives.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The slots of each master.
pub(crate) type SlotRanges = Vec<(RangeInclusive<usize>, Endpoint)>;

/// Which node has which slots, according to one node of the cluster.
#[derive(Debug, PartialEq)]
pub(crate) struct ClusterView {
    /// The highest configuration epoch that the node knows. Failovers and slot migrations increase
    /// it, so a node that was stopped or cut off has a lower one.
    pub(crate) epoch: u64,
    pub(crate) ranges: SlotRanges,
}

impl ClusterView {
    /// The number of slots that have a master.
    fn covered(&self) -> usize {
        self.ranges.iter().map(|(range, _)| range.clone().count()).sum()
    }
}

/// Queries the nodes in random order, a few at a time, until one reports a master for every slot
/// and an epoch of at least `known`. If none does, returns the view with the highest epoch; among
/// views that are as new as `known`, the one with the most slots.
///
/// Without a known epoch it waits for all of the first few nodes and compares their views.
///
/// # Errors
/// The last failure, if no node knows any slot.
pub(crate) async fn discover(
    mut sources: Vec<ConnectionInfo>,
    known: Option<u64>,
) -> Result<ClusterView, CallFailure> {
    fastrand::shuffle(&mut sources);
    let (mut failed, mut best) = (CallFailure::NoMaster, None::<ClusterView>);
    let rank = |view: &ClusterView| (view.epoch.min(known.unwrap_or(u64::MAX)), view.covered());
    for some in sources.chunks(AT_ONCE) {
        let mut queries = some.iter().map(view_of).collect::<FuturesUnordered<_>>();
        while let Some(view) = queries.next().await {
            match view {
                Ok(view)
                    if view.covered() >= SLOTS
                        && known.is_some_and(|known| view.epoch >= known) =>
                {
                    return Ok(view);
                }
                // The view is incomplete, or the node does not know of the last failover.
                Ok(view) if best.as_ref().is_none_or(|best| rank(&view) > rank(best)) => {
                    best = Some(view)
                }
                Ok(_) => {}
                Err(failure) => failed = failure,
            }
        }
        if known.is_none()
            && let Some(whole) = best.take_if(|best| best.covered() >= SLOTS)
        {
            return Ok(whole);
        }
    }
    best.ok_or(failed)
}

async fn view_of(source: &ConnectionInfo) -> Result<ClusterView, CallFailure> {
    let mut node = Wire::open(source, None, RESPONSE_TIMEOUT).await?;
    // The epoch is read first, so that the slots are never older than the epoch says.
    let info: String = query(&mut node, "INFO", "CLUSTER|INFO").await?;
    let ranges = ranges(query(&mut node, "SLOTS", "CLUSTER|SLOTS").await?, &endpoint(source).0)?;
    // A node that was just added and has not met the others yet.
    if ranges.is_empty() {
        Err(CallFailure::NoMaster)
    } else {
        Ok(ClusterView { epoch: epoch(&info)?, ranges })
    }
}

async fn query<T: FromRedisValue>(
    node: &mut Wire,
    what: &str,
    privilege: &'static str,
) -> Result<T, CallFailure> {
    let Wire { commands, traffic, .. } = node;
    let reply = async { Ok(redis::cmd("CLUSTER").arg(what).query_async(commands).await?) };
    let reply = traffic.wait_for(reply, RESPONSE_TIMEOUT).await;
    reply.map_err(|failure| failure.or_refusal_of(privilege))
}

/// Parses the epoch from the reply to `CLUSTER INFO`.
fn epoch(info: &str) -> Result<u64, CallFailure> {
    let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    epoch.and_then(|epoch| epoch.trim().parse().ok()).ok_or(CallFailure::Unexpected)
}

/// Parses the reply to `CLUSTER SLOTS`: for each range its first and last slot, its master and its
/// replicas.
fn ranges(slots: Value, queried: &str) -> Result<SlotRanges, CallFailure> {
    let slots: Vec<Vec<Value>> = from_redis_value(slots).map_err(CallFailure::unexpected_reply)?;
    let mut ranges = SlotRanges::new();
    for range in slots {
        let mut parts = range.into_iter();
        let (Some(first), Some(last), Some(master)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(CallFailure::Unexpected);
        };
        let [first, last] = [from_redis_value::<usize>(first), from_redis_value::<usize>(last)];
        let mut master = from_redis_value::<Vec<Value>>(master)
            .map_err(CallFailure::unexpected_reply)?
            .into_iter();
        let (Some(host), Some(port)) = (master.next(), master.next()) else {
            return Err(CallFailure::Unexpected);
        };
        let host: Option<String> = from_redis_value(host).map_err(CallFailure::unexpected_reply)?;
        let port: u16 = from_redis_value(port).map_err(CallFailure::unexpected_reply)?;
        let host = match host.as_deref() {
            // The node does not know its own address, which is the one that was queried.
            None | Some("") => queried.to_owned(),
            // The node does not know the address of another node.
            Some("?") => continue,
            Some(host) => host.to_owned(),
        };
        ranges.push((
            first.map_err(CallFailure::unexpected_reply)?
                ..=last.map_err(CallFailure::unexpected_reply)?,
            (host, port),
        ));
    }
    Ok(ranges)
}

/// The slot of a key: CRC-16/XMODEM of its hash tag, or of the whole key, modulo 16,384.
pub(crate) fn slot(key: &[u8]) -> u16 {
    slot_of_checksum(checksum(0, tag(key).unwrap_or(key)))
}

pub(crate) fn slot_of_checksum(checksum: u16) -> u16 {
    checksum % 16_384
}

/// The checksum of a text whose beginning has the checksum `beginning`, and that ends with `bytes`.
pub(crate) fn checksum(beginning: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(beginning, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The hash tag of a key: the text between its first braces.
pub(crate) fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = key.get(open + 1..)?;
    rest.get(..rest.iter().position(|byte| *byte == b'}')?).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use redis::IntoConnectionInfo as _;
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// A node that reports one master for the first `slots` slots.
    async fn node(epoch: u64, slots: usize) -> ConnectionInfo {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(respond(stream, epoch, slots));
            }
        });
        format!("redis://127.0.0.1:{port}").into_connection_info().unwrap()
    }

    async fn respond(stream: TcpStream, epoch: u64, slots: usize) {
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let info = format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n");
            let response = match line.as_str() {
                "INFO" => format!("${}\r\n{info}\r\n", info.len()),
                "SLOTS" => format!("*1\r\n*3\r\n:0\r\n:{}\r\n*2\r\n$0\r\n\r\n:7000\r\n", slots - 1),
                // What the client library sends when it connects.
                "SETINFO" => "+OK\r\n".to_owned(),
                _ => continue,
            };
            write.write_all(response.as_bytes()).await.unwrap();
        }
    }

    async fn nodes(views: &[(u64, usize)]) -> Vec<ConnectionInfo> {
        futures_util::future::join_all(views.iter().map(|(epoch, slots)| node(*epoch, *slots)))
            .await
    }

    /// Fails if a node that was stopped during a failover can bring the old master back; writes to
    /// it are lost.
    #[tokio::test]
    async fn a_view_that_is_older_than_the_known_one_does_not_displace_it() {
        let half = SLOTS / 2;
        for (views, known, expected) in [
            // A complete view that is as new as the known one is sufficient.
            (vec![(7, SLOTS), (6, SLOTS), (5, SLOTS)], Some(7), (7..8, SLOTS)),
            (vec![(8, SLOTS), (6, SLOTS), (6, SLOTS), (6, SLOTS)], Some(7), (8..9, SLOTS)),
            // An incomplete view is used if no other view is new enough.
            (vec![(7, half), (6, SLOTS), (6, SLOTS)], Some(7), (7..8, half)),
            (vec![(7, half), (8, SLOTS), (9, half)], Some(7), (8..9, SLOTS)),
            // The cluster was created anew.
            (vec![(2, SLOTS), (1, SLOTS), (2, half)], Some(7), (2..3, SLOTS)),
            // Without a known epoch, views are compared with each other.
            (vec![(6, SLOTS), (7, SLOTS), (6, SLOTS)], None, (7..8, SLOTS)),
            (vec![(6, half), (6, half), (6, half), (6, SLOTS)], None, (6..7, SLOTS)),
        ] {
            let nodes = nodes(&views).await;
            // The order of the queries is random.
            for _ in 0..20 {
                let found = discover(nodes.clone(), known).await.unwrap();
                let (epochs, slots): (Range<u64>, usize) = expected.clone();
                assert!(epochs.contains(&found.epoch), "{views:?}, {known:?}: {}", found.epoch);
                assert_eq!(found.covered(), slots, "{views:?}, {known:?}");
            }
        }
    }

    #[test]
    fn a_view_has_the_epoch_that_its_node_knows() {
        let info = "cluster_enabled:1\r\ncluster_current_epoch:12\r\ncluster_my_epoch:3\r\n";
        assert_eq!(epoch(info).unwrap(), 12);
        assert!(epoch("cluster_my_epoch:3\r\n").is_err());
    }

    #[test]
    fn slots_match_those_of_the_server() {
        // From the cluster specification and `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"a{foo}b{bar}"), 12182);
        assert_eq!(slot(b"foo{}{bar}"), slot(b"foo{}{bar}"));
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
    }

    #[test]
    fn a_master_without_an_address_is_the_node_that_was_queried() {
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
        let expected = vec![
            (0..=99, at("10.0.0.1", 7000)),
            (100..=199, at("queried", 7001)),
            (200..=299, at("queried", 7002)),
        ];
        assert_eq!(ranges(slots, "queried").unwrap(), expected);
        assert!(ranges(Value::Array(vec![Value::Array(vec![Value::Int(1)])]), "queried").is_err());
        assert!(ranges(Value::Okay, "queried").is_err());
    }
}
