//! The attribute's keys: the only list of them. Messages and the tables of both documentations
//! (`src/attribute.md` here, `src/guide/attribute.md` in `idempotent-actix`) come from it.

use proc_macro2::TokenStream;
use syn::{LitStr, Path};

use super::entry::{AttributeKey, Entries, Setting};
use super::key_from::{KeyPlace, key_from};
use super::method::Method;
use super::values::{Comparison, Variant, choice, fingerprint, krate, method, period, positive};
use crate::errors::{Errors, Reported};

/// Declares the keys: the field, and the key where it is another word; the type and the parser of
/// its value; an example for messages; and its row in the documentation.
macro_rules! keys {
    ($(
        $(#[doc = $meaning:literal])+
        $field:ident $(= $name:literal)?: $type:ty = $parse:expr,
        example $example:literal, values $values:literal, default $default:literal;
    )+) => {
        pub(crate) const KEYS: &[AttributeKey] = &[$(AttributeKey {
            name: keys!(@name $field $($name)?),
            example: $example,
            #[cfg(test)]
            row: super::entry::Row {
                values: $values,
                default: $default,
                meaning: &[$($meaning),+],
            },
        }),+];

        /// The attribute, with each key as it is written. It must not be expanded unless
        /// [`Errors`] is empty.
        pub(crate) struct Args {
            $(pub(crate) $field: Setting<$type>,)+
        }

        impl Args {
            /// Parses the attribute's tokens, and reports each key that is malformed, unknown or
            /// has an invalid value. The last is the report of a misspelled `scope`.
            pub(crate) fn read(
                tokens: TokenStream,
                errors: &mut Errors,
            ) -> (Self, Option<Reported>) {
                let mut entries = Entries::parse(tokens, KEYS, errors);
                let args = Self {
                    $($field: entries.take(keys!(@name $field $($name)?), $parse),)+
                };
                (args, entries.refuse_unknown("scope"))
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

keys! {
    /// The principal that the idempotency key belongs to. If the value is the name of a parameter,
    /// its type must implement `ScopeKey`: your own extractor, or `web::ReqData`, `web::Path` or
    /// `web::Header` with a suitable type, but nothing that is read from the body or the query. Any
    /// other value is the path of a function, such as the supplied `scope::bearer_token`,
    /// `scope::peer_ip` and `scope::global`. A request without a principal gets 401
    /// (`scope_missing`).
    scope: LitStr = |_, text: &LitStr| Ok(text.clone()),
        example "user",
        values "a parameter's name, or a path to `fn(&HttpRequest) -> R` with `R: IntoScopeKey`",
        default "required";

    /// How long the response can be replayed, counted from the first claim. At least twice `lease`.
    ttl: u64 = positive,
        example "24h", values "a duration, not zero", default "the builder's `ttl`, else `\"24h\"`";

    /// How long a key stays claimed after the process that claimed it has died. The lease of a
    /// running handler is renewed, so the handler may run for longer. Not with
    /// `claim = "transaction"`.
    lease: u64 = positive,
        example "30s",
        values "a duration, not zero", default "the builder's `lease`, else `\"30s\"`";

    /// How long a duplicate waits for the response of the attempt in flight before it gets 409
    /// (`in_flight`).
    wait: u64 = period,
        example "5s", values "a duration", default "the builder's `wait`, else `\"0s\"`";

    /// How long the handler may run, and its response may then stream until it is recorded, both
    /// together. After that its future is dropped, and the attempt is abandoned.
    timeout: u64 = positive,
        example "30s", values "a duration, not zero", default "the builder's `timeout`, else none";

    /// What happens to a request without an idempotency key: it gets 400 (`key_missing`), or its
    /// handler runs unguarded.
    key: Variant = choice(&[("required", "Required"), ("optional", "Optional")]),
        example "optional", values "`\"required\"`, `\"optional\"`", default "`\"required\"`";

    /// Where the key of a request is, and no other place counts: another header, a field of an HTML
    /// form, a member of a JSON body (by its JSON pointer, RFC 6901), or what your function
    /// returns.
    key_from: KeyPlace = key_from,
        example "header:webhook-id",
        values "`\"header:…\"`, `\"form:…\"`, `\"json:…\"`, or a path to \
            `fn(&HttpRequest, &[u8]) -> R` with `R: IntoKey`",
        default "the builder's `header`, else `Idempotency-Key`";

    /// What must be equal for two requests to count as the same: the bytes of the body, its
    /// canonical JSON (RFC 8785), nothing of it, or the result of your function, such as the
    /// supplied `fingerprint::multipart`. Method, query and the values of the path's dynamic
    /// segments always count; `Content-Type` and `Content-Encoding` count with `"body"` and
    /// `"json"`. Another request with the same key gets 422 (`key_reused`).
    fingerprint: Comparison = fingerprint,
        example "json",
        values "`\"body\"`, `\"json\"`, `\"none\"`, or a path to \
            `fn(&HttpRequest, &[u8]) -> impl AsRef<[u8]>`",
        default "`\"body\"`";

    /// With `fingerprint = "json"`, what does not count of a JSON body: JSON pointers (RFC 6901).
    /// A value that is ignored is the same as none.
    ignore: Vec<LitStr> = |_, pointers: &Vec<LitStr>| Ok(pointers.clone()),
        example "[\"/metadata/sent_at\"]",
        values "`[\"/…\", …]`", default "everything counts";

    /// With `fingerprint = "json"`, what alone counts of a JSON body: JSON pointers (RFC 6901). Not
    /// with `ignore`.
    only: Vec<LitStr> = |_, pointers: &Vec<LitStr>| Ok(pointers.clone()),
        example "[\"/amount\", \"/currency\"]",
        values "`[\"/…\", …]`", default "everything counts";

    /// Whether the order of the query's parameters counts. With `"unordered"` it counts only among
    /// parameters with the same name.
    query: Variant = choice(&[("exact", "Exact"), ("unordered", "Unordered")]),
        example "unordered", values "`\"exact\"`, `\"unordered\"`", default "`\"exact\"`";

    /// Whether the notation of `Content-Type` counts. With `"equivalent"`, case, space, quotes and
    /// the order of parameters do not count, nor `charset=utf-8` with JSON (RFC 8259 §11).
    /// With `"ignored"`, nothing of it counts.
    content_type: Variant =
            choice(&[("exact", "Exact"), ("equivalent", "Equivalent"), ("ignored", "Ignored")]),
        example "equivalent",
        values "`\"exact\"`, `\"equivalent\"`, `\"ignored\"`", default "`\"exact\"`";

    /// Which responses are recorded: all but 408, 425, 429 and 5xx; only 2xx; all. After any other
    /// response, the next request runs the handler again, unless `abandoned` is `"hold"`.
    record: Variant = choice(&[("final", "Final"), ("success", "Success"), ("all", "All")]),
        example "success",
        values "`\"final\"`, `\"success\"`, `\"all\"`",
        default "the builder's `record`, else `\"final\"`";

    /// What happens to the key of an abandoned attempt: its process died, or its handler panicked
    /// or exceeded its `timeout`. `"retry"`: the next request runs the handler again. `"hold"`:
    /// requests get 409 (`outcome_unknown`) until an operator resolves the key; a response that is
    /// not recorded also holds it, unless its `Disposition` is `Retryable`. `"retry_then_hold"`: as
    /// `"retry"` until the handler calls `Operation::point_of_no_return` or runs its first step,
    /// and as `"hold"` from then on. Not with `claim = "transaction"`.
    abandoned: Variant =
            choice(&[("retry", "Retry"), ("hold", "Hold"), ("retry_then_hold", "RetryThenHold")]),
        example "hold",
        values "`\"retry\"`, `\"hold\"`, `\"retry_then_hold\"`",
        default "the builder's `abandoned`, else `\"retry\"`";

    /// When the claim is committed: before the handler runs, or together with its effects and its
    /// response. `"transaction"` needs a `Tx` parameter.
    claim: Variant = choice(&[("lease", "Lease"), ("transaction", "Transaction")]),
        example "transaction", values "`\"lease\"`, `\"transaction\"`", default "`\"lease\"`";

    /// What a duplicate gets after `wait`: 409 (`in_flight`), or 202 with the `Location` at which
    /// its client can poll, which needs `Idempotency::lookup_resource`. `"poll"` needs an operation
    /// that lookups find: not with `claim = "transaction"`, a generic handler or a scope in the
    /// path, and with a `name` if the handler is routed by hand.
    in_flight: Variant = choice(&[("conflict", "Conflict"), ("poll", "Poll")]),
        example "poll", values "`\"conflict\"`, `\"poll\"`", default "`\"conflict\"`";

    /// The method of a handler without a route attribute.
    method: Method = method,
        example "POST",
        values "`\"POST\"`, `\"PUT\"`, `\"PATCH\"`, `\"DELETE\"`",
        default "from the route attribute";

    /// The name of the operation in its record ids. Before you rename a route, set it to the
    /// route's old method and pattern, such as `"POST /v1/payments"`, and for handlers that share a
    /// pattern and differ only in a guard.
    name: String = |_, text: &LitStr| Ok(text.value()),
        example "create-payment", values "any string", default "method and route pattern";

    /// The path to `idempotent_actix`, if your crate renames or re-exports it.
    krate = "crate": Path = krate,
        example "my_crate::idempotent_actix", values "a path", default "`\"::idempotent_actix\"`";
}
