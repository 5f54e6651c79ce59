//! Which header lines of a response are recorded.

use std::collections::HashSet;

/// Returns the header lines to record, raw and in order, of the lines of a response. The names are
/// in lower case. `connection` are the values of the lines `Connection`.
///
/// Lines that belong to one connection, one moment or one client are not recorded, such as
/// `Set-Cookie` and `Date`, nor those that `Connection` names.
#[must_use]
pub fn recorded_lines<'a>(
    lines: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    connection: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<(&'a [u8], &'a [u8])> {
    let named: HashSet<_> = connection
        .into_iter()
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    lines
        .into_iter()
        .filter(|(name, _)| is_recorded(name) && !named.contains(name.as_bytes()))
        .map(|(name, value)| (name.as_bytes(), value))
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
