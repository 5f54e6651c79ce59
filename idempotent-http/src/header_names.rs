//! The names of header fields, in lower case.

/// The usual name of the key header (draft-ietf-httpapi-idempotency-key-header-07 §2.1).
pub const KEY: &str = "idempotency-key";
/// Marks a replayed response; its value is `true`.
pub const REPLAYED: &str = "idempotency-replayed";
/// Marks a replay whose body was not recorded, by the value `omitted`, and one that the application
/// has changed before it was recorded, by `redacted`.
pub const REPLAY: &str = "idempotency-replay";
/// Proves that a request was not run; its value is [that of the key](crate::not_run_mark). Only the
/// server's guard sets it: it is removed from the responses of handlers.
pub const NOT_RUN: &str = "idempotency-not-run";
/// Says that the handler's guard is turned off; its value is `true`.
pub const DISABLED: &str = "idempotency-disabled";
/// Says whether Stripe's client libraries should send a request again; its value is `true` or
/// `false`.
pub const STRIPE_SHOULD_RETRY: &str = "stripe-should-retry";

/// The response headers of the guard that JavaScript in a browser can read only if a CORS
/// configuration exposes them.
pub const EXPOSED_HEADERS: [&str; 8] =
    [REPLAYED, REPLAY, NOT_RUN, DISABLED, "retry-after", "location", "link", STRIPE_SHOULD_RETRY];
