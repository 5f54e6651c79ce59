//! A connection, to a server or to a cluster.

use std::{collections::HashMap, time::Duration};

use redis::{
    Cmd, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
    from_redis_value,
};

use crate::clock::millis;

/// A connection that any number of calls share. It lives as long as the runtime that it was made on.
#[derive(Clone)]
pub(super) enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        let answer = match self {
            Self::Server(server) => server.req_packed_command(command).await,
            Self::Cluster(cluster) => cluster.req_packed_command(command).await,
        };
        answer?.extract_error()
    }

    /// What each master says of itself.
    pub(super) async fn info(&mut self) -> RedisResult<Vec<String>> {
        let info = redis::cmd("INFO");
        match self {
            Self::Server(_) => Ok(vec![from_redis_value(self.send(&info).await?)?]),
            Self::Cluster(cluster) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let infos: HashMap<String, String> =
                    from_redis_value(cluster.route_command(info, masters).await?.extract_error()?)?;
                Ok(infos.into_values().collect())
            }
        }
    }

    /// Waits until so many replicas have what this connection has written to the key's server, and says how many have it.
    ///
    /// Between the write and this call a cluster's connection may come to lead to another server, which waits for nothing: that is
    /// a failover, which can lose the write in any case.
    pub(super) async fn wait(&mut self, key: &[u8], replicas: u32, timeout: Duration) -> RedisResult<u64> {
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(millis(timeout).max(1));
        let answer = match self {
            Self::Server(_) => self.send(&wait).await?,
            Self::Cluster(cluster) => {
                let server = SingleNodeRoutingInfo::SpecificNode(Route::new(slot(key), SlotAddr::Master));
                cluster.route_command(wait, RoutingInfo::SingleNode(server)).await?.extract_error()?
            }
        };
        Ok(from_redis_value(answer)?)
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// The slot of a key: CRC-16/XMODEM of what stands between its first braces, or of all of it, modulo 16,384.
fn slot(key: &[u8]) -> u16 {
    let tag = key.split(|byte| *byte == b'{').nth(1).and_then(|_| {
        let open = key.iter().position(|byte| *byte == b'{')?;
        let rest = key.get(open + 1..)?;
        rest.get(..rest.iter().position(|byte| *byte == b'}')?)
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.iter().fold(0u16, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    });
    crc % 16_384
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
}
