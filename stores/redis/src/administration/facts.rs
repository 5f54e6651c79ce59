//! What the servers tell of themselves.

use super::masters::{masters, now};
use crate::{
    engine::Engine,
    error::CallFailure,
    net::{ConnectionRole, Message},
};
use idempotent_core::{ShortText, protocol::StoreFacts};

/// Asks each master.
pub(super) async fn facts(engine: &Engine) -> Result<StoreFacts, CallFailure> {
    let mut infos = Vec::<String>::new();
    for node in masters(engine)? {
        let info = redis::cmd("INFO");
        let message = Message::Command(&info);
        let info = engine.router.send_to(&node, ConnectionRole::Lists, message).await?;
        infos.push(redis::from_redis_value(info).map_err(CallFailure::unexpected_reply)?);
    }
    let at = now(engine).await?;
    let server = infos.first().map(|info| server(info)).unwrap_or_default();
    Ok(of_infos(StoreFacts::new(at, server), &infos))
}

/// Adds what is in the replies to `INFO`.
fn of_infos(facts: StoreFacts, infos: &[String]) -> StoreFacts {
    let used = infos.iter().filter_map(|info| number(info, "used_memory"));
    let mut facts = facts.with_size("memory of the masters", used.sum());
    let any = |found: fn(&str) -> bool| infos.iter().any(|info| found(info));
    if any(|info| field(info, "aof_enabled") == Some("0")) {
        facts = facts.with_finding(
            "A server has `appendonly no`: a restart loses claims and recordings, and the handlers \
             of their keys then run again.",
            "Set `appendonly yes`.",
        );
    }
    if any(is_nearly_full) {
        facts = facts.with_finding(
            "A server uses more than 80 % of its `maxmemory`. Once it is full, it refuses every \
             claim.",
            "Raise `maxmemory`, or shorten the ttl of operations with large responses.",
        );
    }
    if any(|info| field(info, "connected_slaves") == Some("0")) {
        facts = facts.with_finding(
            "A server has no replica: its loss is the loss of its records.",
            "Add a replica, and let claims wait for it (`wait_for_replicas`).",
        );
    }
    facts
}

fn is_nearly_full(info: &str) -> bool {
    match (number(info, "used_memory"), number(info, "maxmemory")) {
        (Some(used), Some(limit)) => limit > 0 && used > limit / 5 * 4,
        _ => false,
    }
}

fn server(info: &str) -> ShortText {
    let [valkey, redis] = ["valkey_version", "redis_version"].map(|name| field(info, name));
    ShortText::truncated(&match (valkey, redis) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "Redis".to_owned(),
    })
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

fn number(info: &str, name: &str) -> Option<u64> {
    field(info, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use idempotent_core::clock::Timestamp;

    fn facts_of(info: &str) -> StoreFacts {
        of_infos(StoreFacts::new(Timestamp::EPOCH, server(info)), &[info.to_owned()])
    }

    #[test]
    fn what_is_set_well_is_no_finding() {
        let facts = facts_of(
            "redis_version:7.2.4\r\nvalkey_version:8.1.0\r\nused_memory:80\r\nmaxmemory:100\r\n\
             aof_enabled:1\r\nconnected_slaves:1\r\n",
        );
        assert_eq!((facts.server.as_str(), facts.findings.len()), ("Valkey 8.1.0", 0));
        assert_eq!(facts.sizes[0].bytes, 80);
        let facts = facts_of("redis_version:7.2.4\r\nused_memory:80\r\nmaxmemory:0\r\n");
        assert_eq!((facts.server.as_str(), facts.findings.len()), ("Redis 7.2.4", 0));
    }

    #[test]
    fn what_may_lose_or_refuse_records_is_found() {
        let facts =
            facts_of("used_memory:81\r\nmaxmemory:100\r\naof_enabled:0\r\nconnected_slaves:0\r\n");
        let found: Vec<_> = facts.findings.iter().map(|finding| finding.found.as_str()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("appendonly") && found[1].contains("maxmemory"), "{found:?}");
        assert!(found[2].contains("no replica"), "{found:?}");
    }
}
