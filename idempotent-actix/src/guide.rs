//! Guides, from a first handler to production.
//!
//! | guide | what it covers |
//! |---|---|
//! | [`getting_started`] | one guarded handler, and what its clients see |
//! | [`choosing`] | which store, which `claim`, which `abandoned` |
//! | [`attribute`] | all keys of `#[idempotent]`, all HTTP responses, all Cargo features |
//! | [`calling_other_services`] | derived keys, held keys, reconciling |
//! | [`steps`] | recovery: what a later attempt does not repeat, and what holds a key |
//! | [`transactions`] | effects that commit together with the recording |
//! | [`without_tx`] | Diesel, tokio-postgres, or another database than the store's |
//! | [`without_http`] | queue consumers, scheduled jobs, batches, other frameworks |
//! | [`long_work`] | 202, polling, progress, lookups of a key |
//! | [`webhooks`] | events that are delivered more than once |
//! | [`sessions`] | sessions, flash messages, cookies, and replays |
//! | [`cors_logs_openapi`] | browser clients, logs and metrics, published policy |
//! | [`testing`] | tests of your handlers |
//! | [`how_it_is_tested`] | what each kind of test of this library can find, and what it cannot |
//! | [`migrating`] | from your own table, or from "Zero to Production in Rust" |
//! | [`operating`] | limits, sizing, purging, held keys, deployments, outages |
//! | [`security`] | scopes, fingerprints, stored data |
//! | [`for_api_clients`] | a page for the documentation of your API, ready to adapt |
//! | [`questions`] | short questions and answers |

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
    attribute
    calling_other_services
    steps
    transactions
    without_tx
    without_http
    long_work
    webhooks
    sessions
    cors_logs_openapi
    testing
    how_it_is_tested
    migrating
    operating
    security
    for_api_clients
    questions
}
