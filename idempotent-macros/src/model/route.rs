//! The route attributes of actix-web, and the routes that they define.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Attribute, LitStr, Meta, Path};

use super::handler::Handler;
use crate::parse::entry::{Entry, split_at_commas};
use crate::parse::method::Method;

/// The methods and routes of a handler.
#[derive(Debug, PartialEq)]
pub(crate) struct Routing {
    /// Without duplicates.
    pub(crate) methods: Vec<Method>,
    /// Empty for a handler that is registered with `web::post().to(…)`.
    pub(crate) routes: Vec<HandlerRoute>,
}

/// One method at one path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HandlerRoute {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The name of actix-web's resource, if it is not the handler's name.
    pub(crate) resource: Option<String>,
}

/// Whether the handler has a route attribute. If so, it is a free function.
pub(crate) fn is_routed(handler: &Handler) -> bool {
    handler.attributes.iter().any(is_route)
}

/// Whether `attribute` registers the handler, so that it belongs on the guarded function.
pub(crate) fn is_route(attribute: &Attribute) -> bool {
    RouteAttribute::of(attribute).is_some()
}

/// A route attribute, recognized by its name and a leading string literal, because a macro cannot
/// see where a name was imported from.
pub(crate) struct RouteAttribute {
    pub(crate) name: Ident,
    /// Empty for `#[routes]`, as is `methods`.
    pub(crate) path: String,
    /// The value of `name = "…"`.
    pub(crate) resource: Option<String>,
    /// Each method with its tokens, for messages.
    pub(crate) methods: Vec<(String, TokenStream)>,
}

/// The route attributes that are named after a method.
const METHOD_ATTRIBUTES: &str = "get head options trace connect query post put patch delete";

/// The first argument of an attribute that has the name of a route attribute, unless it is a string
/// literal.
pub(crate) fn path_without_literal(attribute: &Attribute) -> Option<TokenStream> {
    let name = &attribute.path().segments.last()?.ident;
    let Meta::List(list) = &attribute.meta else { return None };
    if !is_named_route(attribute.path()) && !is_method(name) {
        return None;
    }
    let first = split_at_commas(list.tokens.clone()).into_iter().next()?;
    let first: TokenStream = first.into_iter().collect();
    syn::parse2::<LitStr>(first.clone()).is_err().then_some(first)
}

/// Whether the path is that of `#[route]`, whose methods are listed.
pub(crate) fn is_named_route(path: &Path) -> bool {
    path.segments.last().is_some_and(|name| name.ident == "route")
}

fn is_method(name: &Ident) -> bool {
    METHOD_ATTRIBUTES.split(' ').any(|known| name == known)
}

impl RouteAttribute {
    pub(crate) fn of(attribute: &Attribute) -> Option<Self> {
        let name = attribute.path().segments.last()?.ident.clone();
        let list = match &attribute.meta {
            Meta::List(list) => list,
            Meta::Path(_) if name == "routes" => {
                return Some(Self {
                    name,
                    path: String::new(),
                    resource: None,
                    methods: Vec::new(),
                });
            }
            Meta::Path(_) | Meta::NameValue(_) => return None,
        };
        let mut entries = split_at_commas(list.tokens.clone()).into_iter();
        let path: LitStr = syn::parse2(entries.next()?.into_iter().collect()).ok()?;
        let entries: Vec<_> = entries.filter_map(|tokens| Entry::parse('=', &tokens)).collect();
        let values = |key| {
            let entries = entries.iter().filter(move |entry| entry.key == key);
            entries.filter_map(Entry::string)
        };
        // actix-web itself refuses a method in lower case.
        let listed =
            |method: LitStr| (method.value().to_ascii_uppercase(), method.to_token_stream());
        let methods = if name == "route" {
            values("method").map(listed).collect()
        } else if is_method(&name) {
            vec![(name.to_string().to_ascii_uppercase(), name.to_token_stream())]
        } else {
            return None;
        };
        let resource = values("name").next().map(|resource| resource.value());
        Some(Self { name, path: path.value(), resource, methods })
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    #[test]
    fn an_attribute_that_only_resembles_a_route_attribute_is_not_one() {
        for attribute in [
            parse_quote!(#[post]),
            parse_quote!(#[post(PATH)]),
            parse_quote!(#[post = "/"]),
            parse_quote!(#[serde(rename = "post")]),
            parse_quote!(#[doc = "/"]),
        ] {
            assert!(!super::is_route(&attribute));
        }
    }
}
