//! What a server must provide before it stores records.

use std::sync::Once;

use crate::error::UnsuitableServer;

/// The requirements for each server of a store.
pub(crate) struct Requirements {
    in_cluster: bool,
    warned: Once,
}

impl Requirements {
    pub(crate) fn new(in_cluster: bool) -> Self {
        Self { in_cluster, warned: Once::new() }
    }

    /// Checks a server's reply to `INFO`, and warns once if a restart of the server loses what it
    /// has acknowledged.
    pub(crate) fn verify(&self, info: &str, server: &str) -> Result<(), UnsuitableServer> {
        check(info, self.in_cluster)?;
        if !persists_writes(info) {
            let warn = "the Redis server has `appendonly no`: a restart loses claims and \
                        recordings; set `appendonly yes`, or use a service that persists each \
                        write";
            self.warned.call_once(|| tracing::warn!(server, "{warn}"));
        }
        Ok(())
    }
}

fn check(info: &str, in_cluster: bool) -> Result<(), UnsuitableServer> {
    let version = field(info, "redis_version")?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(UnsuitableServer::TooOld { version: version.to_owned() });
    }
    if field(info, "role")? != "master" {
        return Err(UnsuitableServer::Replica);
    }
    if !in_cluster && field(info, "cluster_enabled").is_ok_and(|enabled| enabled == "1") {
        return Err(UnsuitableServer::InCluster);
    }
    // Every record expires, so each other policy can evict it. `maxmemory 0` is no exception: a
    // limit can be set later without a restart, and this check would not see it.
    match field(info, "maxmemory_policy")? {
        "noeviction" => Ok(()),
        policy => Err(UnsuitableServer::Evicts { policy: policy.to_owned() }),
    }
}

/// Whether the server has an append-only file. Without one, a restart loses what it has
/// acknowledged.
pub(crate) fn persists_writes(info: &str) -> bool {
    field(info, "aof_enabled").is_ok_and(|enabled| enabled == "1")
}

/// Whether the server has replicas, one of which may take its place.
pub(crate) fn has_replicas(info: &str) -> bool {
    field(info, "connected_slaves").is_ok_and(|number| number != "0")
}

/// Whether the server compares a value before it replaces it (`SET … IFEQ … PX`), and propagates
/// that to its replicas and to its append-only file as a plain `SET … PXAT`: Valkey 8.1. Redis 8.4
/// has the command too, but what it propagates has not been tested
/// (`docs/decisions/036-large-recordings-in-redis.md`).
pub(crate) fn compares_values(info: &str) -> bool {
    let version = field(info, "valkey_version").unwrap_or_default();
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    matches!((parts.next(), parts.next()), (Some(major), Some(minor)) if (major, minor) >= (8, 1))
}

fn field<'a>(info: &'a str, name: &'static str) -> Result<&'a str, UnsuitableServer> {
    let value = info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    value.ok_or(UnsuitableServer::Unknown { field: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, cluster: u8, policy: &str) -> String {
        format!(
            "redis_version:{version}\r\nrole:{role}\r\ncluster_enabled:{cluster}\r\n\
             maxmemory_policy:{policy}\r\n"
        )
    }

    #[test]
    fn an_unsuitable_server_is_refused_with_the_reason() {
        assert_eq!(check(&info("7.0.0", "master", 0, "noeviction"), false), Ok(()));
        assert_eq!(check(&info("10.1", "master", 1, "noeviction"), true), Ok(()));
        for (info, needle) in [
            (info("6.2.14", "master", 0, "noeviction"), "7.0"),
            (info("7.0.15", "slave", 0, "noeviction"), "replica"),
            (info("7.0.15", "master", 1, "noeviction"), "redis+cluster://"),
            (info("7.0.15", "master", 0, "volatile-ttl"), "`maxmemory-policy` is `volatile-ttl`"),
            ("redis_version:7.0.15\r\n".to_owned(), "`role`"),
        ] {
            let refused = check(&info, false).unwrap_err().to_string();
            assert!(refused.contains(needle), "{refused}");
        }
    }

    #[test]
    fn a_server_that_compares_values_is_known_by_its_version() {
        let valkey = |version| format!("redis_version:7.2.4\r\nvalkey_version:{version}\r\n");
        let redis = |version| format!("redis_version:{version}\r\n");
        for info in [valkey("8.1.0"), valkey("8.10.0"), valkey("9.0.1"), valkey("10.0")] {
            assert!(compares_values(&info), "{info}");
        }
        for info in [
            valkey("8.0.9"),
            valkey("7.2.11"),
            redis("7.0.15"),
            redis("8.4.0"),
            redis("10.0"),
            valkey("unstable"),
            String::new(),
        ] {
            assert!(!compares_values(&info), "{info}");
        }
    }

    #[test]
    fn only_an_append_only_file_survives_a_restart() {
        assert!(persists_writes("aof_enabled:1\r\n"));
        assert!(!persists_writes("aof_enabled:0\r\n") && !persists_writes(""));
    }
}
