//! What a server must be before it is trusted with a record.

use std::{fmt, sync::Once};

/// What is required of each server of a store.
pub(super) struct Requirements {
    in_cluster: bool,
    warned: Once,
}

impl Requirements {
    pub(super) fn new(in_cluster: bool) -> Self {
        Self { in_cluster, warned: Once::new() }
    }

    /// Reads what `INFO` says, and warns once if a restart of a server forgets what it has
    /// acknowledged.
    pub(super) fn verify(&self, info: &str) -> Result<(), Refused> {
        check(info, self.in_cluster)?;
        if !keeps_a_log(info) {
            let warn = "the Redis server has `appendonly no`: a restart forgets its claims and recordings";
            self.warned.call_once(|| tracing::warn!("{warn}"));
        }
        Ok(())
    }
}

fn check(info: &str, in_cluster: bool) -> Result<(), Refused> {
    let version = field(info, "redis_version")?;
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(Refused::TooOld { version: version.to_owned() });
    }
    if field(info, "role")? != "master" {
        return Err(Refused::Replica);
    }
    if !in_cluster && field(info, "cluster_enabled").is_ok_and(|enabled| enabled == "1") {
        return Err(Refused::InCluster);
    }
    // Every record expires, so each policy but this one can evict it. With `maxmemory 0` none does,
    // until someone sets a limit, which needs no restart and would not be seen here.
    match field(info, "maxmemory_policy")? {
        "noeviction" => Ok(()),
        policy => Err(Refused::Evicts { policy: policy.to_owned() }),
    }
}

/// Whether a restart of the server forgets nothing that it has acknowledged, but for the last
/// second.
fn keeps_a_log(info: &str) -> bool {
    field(info, "aof_enabled").is_ok_and(|enabled| enabled == "1")
}

fn field<'a>(info: &'a str, name: &'static str) -> Result<&'a str, Refused> {
    let value = info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    value.ok_or(Refused::Unknown { field: name })
}

/// Why a server is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    TooOld { version: String },
    Replica,
    InCluster,
    Evicts { policy: String },
    Unknown { field: &'static str },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld { version } => write!(f, "the server is Redis {version}; it must be 7.0 or later, or Valkey"),
            Self::Replica => {
                f.write_str("the server is a replica; records are read from and written to the master only")
            }
            Self::InCluster => f.write_str("the server belongs to a cluster; name it with `redis+cluster://`"),
            Self::Evicts { policy } => write!(
                f,
                "the server's `maxmemory-policy` is `{policy}`, which evicts records that are alive; set it to `noeviction`"
            ),
            Self::Unknown { field } => write!(f, "the server's `INFO` has no `{field}`"),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, cluster: u8, policy: &str) -> String {
        format!("redis_version:{version}\r\nrole:{role}\r\ncluster_enabled:{cluster}\r\nmaxmemory_policy:{policy}\r\n")
    }

    #[test]
    fn what_is_unsafe_is_refused_by_name() {
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
    fn only_a_log_survives_a_restart() {
        assert!(keeps_a_log("aof_enabled:1\r\n"));
        assert!(!keeps_a_log("aof_enabled:0\r\n") && !keeps_a_log(""));
    }
}
