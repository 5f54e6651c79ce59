//! A receiver of webhooks, which books each event once, however often its provider delivers it. The
//! program in `main.rs` serves it.

mod event;
mod ledger;
mod receiver;
pub mod signature;

pub use ledger::Ledger;
pub use receiver::{Secrets, configure};
