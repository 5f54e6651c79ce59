//! What HTTP adds to the protocol of [`idempotent_core`], without a framework and in plain types.
//!
//! | module | contents |
//! |---|---|
//! | [`key`] | the grammar of the key header, and the other places of a key |
//! | [`dialect`] | how a server speaks of idempotency: headers, markers, problems |
//! | [`digest`] | the digest of a request: what "the same request" means |
//! | [`problem`] | problems (RFC 9457), their codes, and how they are written as JSON |
//! | [`header_names`] | the names of header fields |
//! | [`recording`] | which responses are recorded with which headers, and their encoding |
//! | `report` | what is shown of recordings; needs the feature `report` |
//! | [`openapi`] | what is added to an OpenAPI document of guarded operations |
//! | [`specification`] | the published policy of operations, as JSON |
//!
//! Servers and clients share these definitions. Applications use [`idempotent-actix`] or
//! [`idempotent-client`]. Depend on this crate only to write an adapter for another framework.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix
//! [`idempotent-client`]: https://docs.rs/idempotent-client

pub mod dialect;
pub mod digest;
pub mod header_names;
pub mod key;
mod not_run;
pub mod openapi;
pub mod problem;
pub mod recording;
#[cfg(feature = "report")]
pub mod report;
pub mod specification;

pub use idempotent_core::{Key, KeyError};

pub use not_run::not_run_mark;
