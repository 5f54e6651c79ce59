//! Distributes the handler's attributes to the functions of the expansion.

use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, MetaList, Token, parse_quote};

use super::handler::Handler;
use super::route::is_route;

/// Attributes that move to the guarded handler, besides route attributes and lint levels. `path`
/// is utoipa's.
const OUTER: [&str; 6] = ["doc", "deprecated", "must_use", "path", "cfg", "cfg_attr"];
const LINTS: [&str; 5] = ["allow", "warn", "deny", "forbid", "expect"];

/// The attributes of the guarded handler. Each `expect` becomes an `allow`: the lint may fire only
/// in the user's function, which keeps its `expect`.
pub(crate) fn outer(handler: &Handler) -> Vec<Attribute> {
    let mut outer: Vec<_> =
        handler.attributes.iter().filter(|attribute| is_outer(attribute)).cloned().collect();
    outer.iter_mut().for_each(|attribute| allow_for_expect(&mut attribute.meta));
    outer
}

fn allow_for_expect(meta: &mut Meta) {
    let Meta::List(list) = meta else { return };
    if list.path.is_ident("expect") && !is_about_dead_code(list) {
        list.path = parse_quote!(allow);
    } else if list.path.is_ident("cfg_attr")
        && let Ok(mut metas) = conditional(list)
    {
        metas.iter_mut().skip(1).for_each(allow_for_expect);
        list.tokens = metas.to_token_stream();
    }
}

/// The predicate of a `cfg_attr`, and its attributes.
fn conditional(list: &MetaList) -> syn::Result<Punctuated<Meta, Token![,]>> {
    list.parse_args_with(Punctuated::parse_terminated)
}

/// The attributes that the unguarded function has as well: `cfg` and lint levels.
pub(crate) fn shared(handler: &Handler) -> impl Iterator<Item = &Attribute> {
    let attributes = handler.attributes.iter();
    attributes.filter(|attribute| is_shared(&attribute.meta))
}

/// The attributes that stay on the user's function, such as `#[instrument]`.
pub(crate) fn inner(handler: &Handler) -> Vec<&Attribute> {
    handler.attributes.iter().filter(|attribute| !is_outer(attribute)).collect()
}

fn is_outer(attribute: &Attribute) -> bool {
    let name = attribute.path().segments.last();
    let mut names = OUTER.iter().chain(&LINTS);
    name.is_some_and(|name| names.any(|known| name.ident == known)) || is_route(attribute)
}

fn is_shared(meta: &Meta) -> bool {
    let path = meta.path();
    let Meta::List(list) = meta else { return false };
    if path.is_ident("cfg_attr") {
        return conditional(list).is_ok_and(|metas| metas.iter().skip(1).all(is_shared));
    }
    path.is_ident("cfg")
        || LINTS.iter().any(|lint| path.is_ident(lint)) && !is_about_dead_code(list)
}

/// Dead code is reported for the guarded handler only: the unguarded function has an `allow`.
fn is_about_dead_code(list: &MetaList) -> bool {
    list.tokens.to_string().contains("dead_code")
}
