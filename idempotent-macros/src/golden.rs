//! Golden expansions: `golden/NAME.rs` is the handler, `golden/NAME.expanded.rs` what becomes of it.
//!
//! `UPDATE_EXPECT=1 cargo test -p idempotent-macros` writes the expansions anew.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{File, Item, Meta};

use crate::expand::idempotent;

/// The budget for what one expansion adds to the pretty-printed handler. Its parameters stand once more in the
/// outer signature; they are the user's own text and not counted.
const ADDED_LINES: usize = 20;

struct Golden {
    original: String,
    expanded: String,
    parameters: usize,
}

fn apply(source: &str) -> Golden {
    let file: File = syn::parse_str(source).unwrap();
    let [Item::Fn(function)] = file.items.as_slice() else {
        panic!("one function is expected");
    };
    let mut function = function.clone();
    let attribute = function.attrs.remove(0);
    assert!(attribute.path().is_ident("idempotent"));
    let Meta::List(keys) = attribute.meta else {
        panic!("keys are expected");
    };
    Golden {
        original: pretty(file.to_token_stream()),
        expanded: pretty(idempotent(keys.tokens, function.to_token_stream())),
        parameters: function.sig.inputs.len(),
    }
}

fn pretty(tokens: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(tokens).unwrap())
}

fn golden(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let source = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
    let Golden { original, expanded, parameters } = apply(&source);
    assert_eq!(original, source, "golden/{name}.rs is not as prettyplease prints it");
    expect_test::expect_file![folder.join(format!("{name}.expanded.rs"))].assert_eq(&expanded);
    let added = expanded.lines().count() - original.lines().count() - parameters;
    assert!(added < ADDED_LINES, "{added} lines added to {name}");
}

macro_rules! golden {
    ($($name:ident)*) => {
        $(#[test] fn $name() { golden(stringify!($name)); })*
    };
}

golden! {
    documented
    every_key
    configured_parameter
    destructured
    generic
    routed_by_hand
    routes
    scope_by_path
    seven_parameters
    transaction
}
