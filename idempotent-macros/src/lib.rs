//! The attribute macro of [`idempotent-actix`](https://docs.rs/idempotent-actix), which re-exports it. Use that crate.
//!
//! The macro turns one function into one call; everything that can be a function in the runtime is one.

mod args;
mod duration;
mod entry;
mod errors;
mod expand;
#[cfg(test)]
mod golden;
mod handler;
#[cfg(test)]
mod mistakes;
mod nearest;
mod route;

use proc_macro::TokenStream;

#[proc_macro_attribute]
pub fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::idempotent(attribute.into(), item.into()).into()
}
