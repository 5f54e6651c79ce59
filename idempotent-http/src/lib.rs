//! What HTTP adds to the protocol of [`idempotent_core`], without a framework and in plain types.
//!
//! | module | contents |
//! |---|---|
//! | [`key`] | the grammar of the key header, and the other places of a key |
//! | [`digest`] | the digest of a request: what "the same request" means |
//! | [`recording`] | which responses are recorded with which headers, and their encoding |
//!
//! Servers and clients share these definitions. Applications use [`idempotent-actix`] or
//! [`idempotent-client`]. Depend on this crate only to write an adapter for another framework.
//!
//! [`idempotent-actix`]: https://docs.rs/idempotent-actix
//! [`idempotent-client`]: https://docs.rs/idempotent-client

pub mod digest;
pub mod key;
pub mod recording;

pub use idempotent_core::{Key, KeyError};
