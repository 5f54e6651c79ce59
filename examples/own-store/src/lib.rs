//! A store of your own: a file for each record, written against the public API of
//! `idempotent-core` alone.
//!
//! [`FileStore`] implements [`Store`](idempotent_core::Store) with the methods that have no
//! default. Each step locks the folder, reads the record, lets
//! [`transition`](idempotent_core::transition) decide, and replaces the file. A store on a database
//! repeats the decision in its own language instead, in one atomic statement.
//!
//! * `tests/conformance.rs` runs the public suite, on two stores that share their folder:
//!   `cargo test -p own-store`.
//! * `examples/orders.rs` is a server with this store behind `#[idempotent]`:
//!   `cargo run -p own-store --example orders`.

mod entry;
mod folder;
mod store;

pub use store::{FileStore, MachineClock};
