//! A server of the Model Context Protocol (MCP) with one tool, which refunds customers. A call of
//! the tool that is repeated moves the money once. The program in `main.rs` serves it.

mod bank;
mod json_rpc;
mod problem;
mod refund;

use std::time::Duration;

use actix_web::{
    middleware::from_fn,
    web::{self, ServiceConfig},
};
use idempotent_actix::IdempotencyBuilder;

pub use crate::bank::Bank;

/// Registers `/mcp`. Its handlers need a [`Bank`], and an `Idempotency` with these [`settings`].
pub fn configure(config: &mut ServiceConfig) {
    let mcp = web::resource("/mcp")
        .app_data(refund::invalid_arguments())
        .wrap(from_fn(json_rpc::serve))
        .route(web::post().to(refund::refund));
    config.service(mcp);
}

/// Problems are results of the tool, which a model reads. A call that is repeated while the first
/// one runs waits for its result: to a model, this is the simplest response.
#[must_use]
pub fn settings(builder: IdempotencyBuilder) -> IdempotencyBuilder {
    builder.problems(problem::render).wait(Duration::from_secs(5))
}
