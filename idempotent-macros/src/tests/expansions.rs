//! Golden expansions: `golden/NAME.rs` is a handler, `golden/NAME.expanded.rs` its expansion.
//! `UPDATE_EXPECT=1 cargo test -p idempotent-macros` rewrites them.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{File, Item, Meta};

use crate::expand::idempotent;

/// The most lines that one expansion may add to the pretty-printed handler: 20 for the guarded
/// function, 5 for the unguarded one. The user's signature, which both repeat, does not count, nor
/// does the copy of the handler that is compiled for unit tests only.
const ADDED_LINES: usize = 25;

struct Golden {
    original: String,
    expanded: String,
    signature: usize,
}

fn apply(source: &str) -> Golden {
    let file: File = syn::parse_str(source).unwrap();
    let [Item::Fn(function)] = file.items.as_slice() else {
        panic!("expected one function");
    };
    let mut function = function.clone();
    let attribute = function.attrs.remove(0);
    assert!(attribute.path().is_ident("idempotent"));
    let Meta::List(keys) = attribute.meta else {
        panic!("expected keys in the attribute");
    };
    let signature = &function.sig;
    Golden {
        original: pretty(file.to_token_stream()),
        expanded: pretty(idempotent(keys.tokens, function.to_token_stream())),
        signature: function.sig.inputs.len().max(pretty(quote!(#signature {})).lines().count()),
    }
}

fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(tokens).unwrap())
}

fn golden(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let source = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
    let Golden { original, expanded, signature } = apply(&source);
    assert_eq!(original, source, "golden/{name}.rs is not formatted by prettyplease");
    expect_test::expect_file![folder.join(format!("{name}.expanded.rs"))].assert_eq(&expanded);
    let copies = if expanded.contains("#[cfg(test)]") { 2 } else { 1 };
    let added = expanded.lines().count() - copies * original.lines().count() - 2 * signature;
    assert!(added < ADDED_LINES, "the expansion of {name} adds {added} lines");
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test] fn $name() { golden(stringify!($name)); })*
    };
}

golden! {
    body_key
    documented
    key_function
    every_key
    configured_parameter
    destructured
    generic
    ignored_members
    only_members
    routed_by_hand
    routes
    scope_by_path
    seven_parameters
    transaction
}
