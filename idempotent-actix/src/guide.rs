//! Guides, from a first handler to production.
//!
//! # Start
//! * [`getting_started`]: one guarded handler, and what its clients see
//! * [`choosing`]: which store, which `claim`, which `abandoned`
//! * [`questions`]: short questions and answers
//!
//! # Build
//! * [`calling_other_services`]: derived keys, held keys, reconciling
//! * [`steps`]: recovery: what a later attempt does not repeat, and what holds a key
//! * [`transactions`]: effects that commit together with the recording
//! * [`without_tx`]: Diesel, tokio-postgres, or another database than the store's
//! * [`without_http`]: queue consumers, scheduled jobs, batches, other frameworks
//! * [`long_work`]: 202, polling, progress, lookups of a key
//! * [`webhooks`]: events that are delivered more than once
//! * [`agents`]: tools of AI agents (MCP) that are called more than once
//! * [`sessions`]: sessions, flash messages, cookies, and replays
//! * [`testing`]: tests of your handlers
//!
//! # Run
//! * [`operating`]: limits, sizing, purging, logs, deployments
//! * [`on_call`]: the page rings at three in the morning; what now?
//! * [`operators`]: held keys, finding a record, forgetting and erasing, the log of decisions
//! * [`postgres`], [`sqlite`], [`mysql`], [`redis`], [`dynamodb`]: each store in production
//! * [`servers`]: which servers, services and poolers each store works with
//! * [`failures`]: what happens when something fails, and what is not guaranteed
//! * [`security`]: scopes, fingerprints, stored data
//! * [`migrating`]: from your own table, or from "Zero to Production in Rust"
//!
//! # Reference
//! * [`attribute`]: all keys of `#[idempotent]`, all HTTP responses, all Cargo features
//! * [`cors_logs_openapi`]: browser clients, logs and metrics, published policy
//! * [`openapi`]: the header, the problems and the policy in your OpenAPI document
//! * [`dialects`]: headers, markers and problems as Stripe, the Agentic Commerce Protocol, or your
//!   own API has them
//! * [`for_api_clients`]: a page for the documentation of your API, ready to adapt
//! * [`how_it_is_tested`]: what each kind of test of this library can find, and what it cannot

/// Declares one module for each Markdown file of the guide, in the order of reading. The code in
/// the guides uses the default stores.
///
/// The files refer to their pictures by relative paths, which rustdoc does not resolve. The
/// definitions in `pictures.md` come first, so they take precedence in rustdoc.
macro_rules! guides {
    ($($name:ident)*) => { $(
        pub mod $name {
            #![cfg_attr(doc, doc = include_str!("guide/pictures.md"))]
            #![cfg_attr(
                all(feature = "memory", feature = "sqlite"),
                doc = include_str!(concat!("guide/", stringify!($name), ".md"))
            )]
            #![cfg_attr(
                not(all(feature = "memory", feature = "sqlite")),
                doc = "This guide needs the features `memory` and `sqlite`."
            )]
        }
    )* };
}

guides! {
    getting_started
    choosing
    questions
    calling_other_services
    steps
    transactions
    without_tx
    without_http
    long_work
    webhooks
    agents
    sessions
    testing
    operating
    on_call
    operators
    postgres
    sqlite
    mysql
    redis
    dynamodb
    servers
    failures
    security
    migrating
    attribute
    cors_logs_openapi
    openapi
    dialects
    for_api_clients
    how_it_is_tested
}
