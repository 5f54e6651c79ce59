//! Which header lines of a response are recorded.

use std::collections::HashSet;

use actix_web::{dev::ResponseHead, http::header};

/// The header lines to record: raw, and in the order in which the response holds them.
pub(super) fn recorded_lines(head: &ResponseHead) -> Vec<(&[u8], &[u8])> {
    let headers = head.headers();
    let named: HashSet<_> = headers
        .get_all(header::CONNECTION)
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    headers
        .iter()
        .filter(|(name, _)| is_recorded(name.as_str()) && !named.contains(name.as_str().as_bytes()))
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
        .collect()
}

/// Whether a header is recorded. Headers that belong to one connection, one moment or one client
/// are not.
fn is_recorded(name: &str) -> bool {
    let never = matches!(
        name,
        "alt-svc"
            | "authentication-info"
            | "clear-site-data"
            | "connection"
            | "content-length"
            | "date"
            | "idempotency-not-run"
            | "idempotency-replay"
            | "idempotency-replayed"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-connection"
            | "server"
            | "server-timing"
            | "set-cookie"
            | "set-cookie2"
            | "strict-transport-security"
            | "te"
            | "traceparent"
            | "tracestate"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "www-authenticate"
    );
    let families = ["access-control-", "ratelimit", "x-ratelimit"];
    !never && !families.iter().any(|family| name.starts_with(family))
}
