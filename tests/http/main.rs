//! The HTTP behavior: every row of the response table in the attribute's guide, with exact
//! statuses, headers and bytes, over real connections.
//!
//! One binary, because each test binary links all dependencies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod abandoned;
mod api_clients;
mod bodies;
mod bounds;
mod clocks;
mod completers;
mod conflicts;
mod console;
mod defaults;
mod dialects;
mod extractors;
mod fencing;
mod fingerprints;
mod handler_errors;
mod handlers;
mod hazards;
mod headers;
mod identities;
mod jobs;
mod key_places;
mod key_sources;
mod keys;
mod logging;
mod lookups;
mod metrics;
mod middleware;
mod misconfigured;
mod multipart;
mod namespaces;
mod openapi;
mod operations;
mod oversized;
mod panics;
mod parts_of_requests;
mod payloads;
mod policies;
mod problems;
mod replay;
mod rollouts;
mod routing;
mod rules;
mod scopes;
mod secrets;
mod security;
mod silent_clients;
mod small_pools;
mod steps;
mod store_failures;
mod store_refusals;
mod streams;
mod traces;
mod transactions;
mod two_handles;
mod unsupported;
mod waiting;
