//! What the route attributes below `#[idempotent]` say: methods and path.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, LitStr, Meta};

use crate::entry::{self, Entry};
use crate::errors::{Errors, Reported};
use crate::method::{Method, MethodKey};

/// How the handler is reached.
#[derive(Debug, PartialEq)]
pub(crate) struct Routing {
    /// Each once.
    pub(crate) methods: Vec<Method>,
    /// Of the first route attribute; empty for a handler that is routed by hand.
    pub(crate) path: String,
}

impl Routing {
    /// Combines the route attributes with the `method` key.
    pub(crate) fn of(attributes: &[Attribute], method: &MethodKey, errors: &mut Errors) -> Result<Self, Reported> {
        let routes: Vec<_> = attributes.iter().filter_map(RouteAttribute::of).collect();
        let Some(first) = routes.first() else {
            return Self::by_hand(method, errors);
        };
        let listed = routes.iter().flat_map(|route| &route.methods);
        let mut methods = Vec::new();
        let mut refused = Ok(());
        for (name, at) in listed {
            match Method::named(name) {
                Some(method) if methods.contains(&method) => {}
                Some(method) => methods.push(method),
                None => refused = Err(errors.at(at, Method::refusal(name), EXAMPLE)),
            }
        }
        refused?;
        if methods.is_empty() {
            let name = &first.name;
            let what = format!("`#[{name}]` lists no method; write which ones it serves");
            let help = "write `#[route(\"/v1/payments\", method = \"POST\")]`, or `#[post(\"/v1/payments\")]` below `#[routes]`";
            return Err(errors.at(name, what, help));
        }
        let path = routes.iter().find_map(|route| route.path.clone());
        let path = path.unwrap_or_default();
        Self { methods, path }.agreeing(method, errors)
    }

    /// Where no route attribute is in sight, the `method` key has to say it.
    fn by_hand(method: &MethodKey, errors: &mut Errors) -> Result<Self, Reported> {
        match method {
            Some(Ok((method, _))) => Ok(Self { methods: vec![*method], path: String::new() }),
            Some(Err(reported)) => Err(*reported),
            None => {
                let what = "the handler's method is unknown: no route attribute stands below `#[idempotent]`; \
                    write one below it, or add `method` if the handler is routed by hand; \
                    if the route attribute stands above `#[idempotent]`, move `#[idempotent]` above it";
                let help =
                    "write `#[post(\"/v1/payments\")]` in the next line, or `#[idempotent(…, method = \"POST\")]`";
                Err(errors.at(TokenStream::new(), what, help))
            }
        }
    }

    /// Refuses a `method` key that says anything else than the route attributes.
    fn agreeing(self, method: &MethodKey, errors: &mut Errors) -> Result<Self, Reported> {
        match method {
            Some(Ok((method, literal))) if self.methods != [*method] => {
                let own: Vec<_> = self.methods.iter().map(|own| own.name).collect();
                let (own, given) = (own.join("` and `"), method.name);
                let what = format!("`{given}` contradicts the route attribute, which says `{own}`; leave `method` out");
                let help = "`method` is for handlers without a route attribute, as in `web::post().to(handler)`";
                Err(errors.at(literal, what, help))
            }
            Some(Err(reported)) => Err(*reported),
            Some(Ok(_)) | None => Ok(self),
        }
    }
}

const EXAMPLE: &str = "write `#[post(\"/v1/payments\")]` or `#[route(\"/v1/payments\", method = \"POST\")]`";

/// Whether `attribute` makes a service of the handler, and so has to stay on the outside.
pub(crate) fn is_route(attribute: &Attribute) -> bool {
    RouteAttribute::of(attribute).is_some()
}

/// A route attribute of actix-web. It is recognised by its name and a leading string literal, since a
/// macro cannot see what a name was imported from.
struct RouteAttribute {
    name: Ident,
    path: Option<String>,
    /// Each with the tokens that name it.
    methods: Vec<(String, TokenStream)>,
}

/// The attributes that are named for their method.
const OF_ONE_METHOD: &str = "get head options trace connect query post put patch delete";

impl RouteAttribute {
    fn of(attribute: &Attribute) -> Option<Self> {
        let name = attribute.path().segments.last()?.ident.clone();
        let known = name.to_string();
        let (path, methods) = match &attribute.meta {
            Meta::List(list) => {
                let mut entries = entry::split(list.tokens.clone()).into_iter();
                let path: LitStr = syn::parse2(entries.next()?.into_iter().collect()).ok()?;
                let methods = match known.as_str() {
                    "route" => entries.filter_map(listed_method).collect(),
                    known if OF_ONE_METHOD.split(' ').any(|own| own == known) => {
                        vec![(known.to_ascii_uppercase(), name.to_token_stream())]
                    }
                    _ => return None,
                };
                (Some(path.value()), methods)
            }
            Meta::Path(_) if known == "routes" => (None, Vec::new()),
            Meta::Path(_) | Meta::NameValue(_) => return None,
        };
        Some(Self { name, path, methods })
    }
}

/// The `method = "POST"` of `#[route]`. That it must be written in capitals is actix-web's to say.
fn listed_method(tokens: Vec<TokenTree>) -> Option<(String, TokenStream)> {
    let entry = Entry::parse(&tokens).filter(|entry| entry.key == "method")?;
    let literal = entry.string()?;
    let name = literal.value().to_ascii_uppercase();
    Some((name, literal.to_token_stream()))
}

#[cfg(test)]
mod tests {
    use syn::{Attribute, parse_quote};

    use super::{Method, Routing};
    use crate::errors::Errors;

    fn routing(attributes: &[Attribute]) -> Option<Routing> {
        Routing::of(attributes, &None, &mut Errors::default()).ok()
    }

    #[test]
    fn a_route_attribute_is_known_by_its_last_segment() {
        for attribute in [
            parse_quote!(#[post("/pay")]),
            parse_quote!(#[actix_web::post("/pay", name = "pay", wrap = "Log")]),
            parse_quote!(#[route("/pay", method = "POST", guard = "fits")]),
            parse_quote!(#[::actix_web::route("/pay", method = "POST", method = "POST")]),
            parse_quote!(#[route("/pay", method = "post")]),
        ] {
            let expected = Routing { methods: vec![Method::POST], path: "/pay".to_owned() };
            assert_eq!(routing(&[attribute]), Some(expected));
        }
    }

    #[test]
    fn routes_is_the_union_of_its_attributes() {
        let attributes: [Attribute; 4] = [
            parse_quote!(#[routes]),
            parse_quote!(#[put("/a")]),
            parse_quote!(#[patch("/b")]),
            parse_quote!(#[put("/c")]),
        ];
        let routing = routing(&attributes).unwrap();
        let methods: Vec<_> = routing.methods.iter().map(|method| method.name).collect();
        assert_eq!((methods, routing.path.as_str()), (vec!["PUT", "PATCH"], "/a"));
    }

    #[test]
    fn a_method_that_cannot_be_guarded_is_refused() {
        for attribute in [
            parse_quote!(#[get("/")]),
            parse_quote!(#[actix_web::head("/")]),
            parse_quote!(#[options("/")]),
            parse_quote!(#[trace("/")]),
            parse_quote!(#[connect("/")]),
            parse_quote!(#[query("/")]),
            parse_quote!(#[route("/", method = "POST", method = "GET")]),
            parse_quote!(#[route("/", method = "PURGE")]),
            parse_quote!(#[route("/")]),
            parse_quote!(#[routes]),
        ] {
            assert_eq!(routing(&[attribute]), None);
        }
    }

    #[test]
    fn what_only_looks_like_a_route_is_none() {
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

    #[test]
    fn the_method_key_must_agree() {
        let post = Some(Ok((Method::POST, parse_quote!("POST"))));
        for (attributes, agrees) in [
            (vec![], true),
            (vec![parse_quote!(#[post("/")])], true),
            (vec![parse_quote!(#[put("/")])], false),
            (vec![parse_quote!(#[route("/", method = "POST", method = "PUT")])], false),
        ] {
            let routing = Routing::of(&attributes, &post, &mut Errors::default());
            assert_eq!(routing.is_ok(), agrees);
        }
    }
}
