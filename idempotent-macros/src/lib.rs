//! The attribute macro of [`idempotent-actix`](https://docs.rs/idempotent-actix), which re-exports it. Use that crate.
//!
//! The macro turns one function into one call; everything that can be a function in the runtime is one.
//! Its way: tokens → `args`, `handler`, `route` (data, with every mistake collected in `errors`) → `expand`.

mod args;
mod borrow;
mod duration;
mod entry;
mod errors;
mod expand;
#[cfg(test)]
mod golden;
mod handler;
mod method;
#[cfg(test)]
mod mistakes;
mod nearest;
mod route;
mod transaction;

use proc_macro::TokenStream;

/// Answers a repeated request once: the handler runs for the first request with an `Idempotency-Key`, and
/// every retry of it gets the first answer.
///
/// ```text
/// #[idempotent(scope = "user", ttl = "24h")]
/// #[post("/v1/payments")]
/// async fn create_payment(user: User, body: web::Json<NewPayment>) -> actix_web::Result<HttpResponse> { … }
/// ```
///
/// It stands **above** the route attribute, so that it sees the method: `POST`, `PUT`, `PATCH` and `DELETE`
/// can be guarded, and any other is a compile error, in `#[route]` and `#[routes]` too. A handler that is routed
/// by hand (`web::post().to(handler)`) says its `method` itself.
///
/// # Keys
///
/// | key | values | default | meaning |
/// |---|---|---|---|
/// | `scope` | a parameter's name, or a path to `fn(&HttpRequest) -> R` with `R: IntoScopeKey` | required | whose key it is. A bare identifier that names a parameter is that parameter, whose type implements `ScopeKey`: your own extractor, `web::ReqData`, `web::Path` or `web::Header`, but nothing that is read from the body or the query; anything else is a path. `None` is answered with 401 |
/// | `ttl` | `"90s"`, `"15m"`, `"24h"`, `"7d"`, sums such as `"1h30m"` | `"24h"` | how long the answer can be replayed |
/// | `lease` | duration, at most half of `ttl` | `"30s"` | how long a claim outlives a process that died. Not with `claim = "transaction"` |
/// | `wait` | duration | `"0s"` | how long a duplicate waits for the first attempt's answer before it gets 409 |
/// | `timeout` | duration | the builder's, else none | how long the handler may work; then its attempt is abandoned |
/// | `key` | `"required"`, `"optional"` | `"required"` | what a request without a key gets: 400, or an unguarded run |
/// | `fingerprint` | `"body"` (bytes as sent), `"json"` (RFC 8785 canonical form), `"none"`, or a path | `"body"` | what "the same request" means; method, path and query are always part of it, and `Content-Type` with `"body"` and `"json"` |
/// | `record` | `"final"`, `"success"`, `"all"` | `"final"` | which answers are kept: everything but 408, 425, 429 and 5xx; 2xx; 5xx too |
/// | `abandoned` | `"retry"`, `"hold"` | `"retry"` | after a crash in mid-work: let the next request run again, or answer "outcome unknown" until someone resolves it. With `"hold"` an answer that is not kept does the same, unless the handler says `Disposition::Retryable`. Not with `claim = "transaction"` |
/// | `claim` | `"lease"`, `"transaction"` | `"lease"` | when the claim is committed: before the work, or with it. `"transaction"` needs a `Tx` parameter |
/// | `method` | `"POST"`, `"PUT"`, `"PATCH"`, `"DELETE"` | from the route attribute | for handlers routed by hand |
/// | `name` | string | method and route pattern | the operation's identity in stored records; fix it before you rename a route, and tell handlers apart by it that share a pattern and differ in a guard only |
/// | `crate` | a path | `"::idempotent_actix"` | where the crate is found if it was renamed or re-exported |
///
/// Durations are whole numbers with the units `d`, `h`, `m`, `s` and `ms`, the largest first, up to `36500d`.
/// `ttl`, `lease` and `timeout` are not zero.
///
/// # The transaction
///
/// A handler that takes a `Tx<Db>`, such as `mut tx: Tx<Postgres>`, writes through the transaction in which its answer is
/// recorded: what it wrote is there only if its answer is. `claim` says what becomes of the claim:
///
/// * `"lease"`: it is committed before the work. A duplicate is told at once that the first attempt is at work, and the
///   work may take long and call other services.
/// * `"transaction"`: it is committed with the work and the answer, so there is one commit. A crash rolls all three back,
///   which is why there is no `lease` and nothing is ever `abandoned`. A duplicate waits for the first attempt, within
///   bounds. It is for short work that concerns the database alone.
///
/// The parameter is taken by value, on its own or in a tuple, once. It is known by the name `Tx`: a type alias with another
/// name has to be written out. Inside another type, such as `Option<Tx<Db>>`, it is a compile error.
///
/// # The handler
///
/// It is an `async fn` of up to 15 owned parameters. Extractors, patterns, generics and the return type stay as
/// they are. Route attributes, docs, `cfg`, lints and `utoipa::path` concern the guarded handler; all others, such as
/// `tracing::instrument`, stay with the function as it was written. An attribute that adds parameters of its own stands
/// above `#[idempotent]`.
///
/// Unless `fingerprint = "none"`, middleware that reads the body restores it whole with `ServiceRequest::set_payload`. A request
/// whose body is gone, or shorter than its `Content-Length`, gets 500 (`misconfigured`) and does not run. Middleware that replaces
/// a body by a shorter one corrects or removes `Content-Length` too. Without a `Content-Length`, a part that middleware has read
/// in place cannot be noticed.
///
/// # Errors
///
/// Every mistake is a compile error at the token at fault, all of them in one compile.
#[proc_macro_attribute]
pub fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::idempotent(attribute.into(), item.into()).into()
}
