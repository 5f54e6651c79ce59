//! What the route attributes below `#[idempotent]` say: methods and path.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Attribute, LitStr, Meta};

use crate::entry::{self, Entry};
use crate::errors::{Errors, Reported};
use crate::method::{Method, MethodKey};

/// How the handler is reached.
#[derive(Debug, PartialEq)]
pub(crate) struct Routing {
    /// Each method once.
    pub(crate) methods: Vec<Method>,
    /// Each method of each route attribute; empty for a handler that is routed by hand.
    pub(crate) routes: Vec<Route>,
}

/// One way to the handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The name of the resource that actix-web registers, where it is not the handler's.
    pub(crate) resource: Option<String>,
}

impl Routing {
    /// Combines the route attributes with the `method` key.
    pub(crate) fn of(attributes: &[Attribute], method: &MethodKey, errors: &mut Errors) -> Result<Self, Reported> {
        let attributes: Vec<_> = attributes.iter().filter_map(RouteAttribute::of).collect();
        let Some(first) = attributes.first() else {
            return Self::by_hand(method, errors);
        };
        let (mut methods, mut routes) = (Vec::new(), Vec::new());
        let mut refused = Ok(());
        for attribute in &attributes {
            for (name, at) in &attribute.methods {
                let Some(method) = Method::named(name) else {
                    refused = Err(errors.at(at, Method::refusal(name), EXAMPLE));
                    continue;
                };
                if !methods.contains(&method) {
                    methods.push(method);
                }
                let (path, resource) = (attribute.path.clone().unwrap_or_default(), attribute.resource.clone());
                let route = Route { method, path, resource };
                if !routes.contains(&route) {
                    routes.push(route);
                }
            }
        }
        refused?;
        if methods.is_empty() {
            let name = &first.name;
            let what = format!("`#[{name}]` lists no method; write which ones it serves");
            let help = "write `#[route(\"/v1/payments\", method = \"POST\")]`, or `#[post(\"/v1/payments\")]` below `#[routes]`";
            return Err(errors.at(name, what, help));
        }
        Self { methods, routes }.agreeing(method, errors)
    }

    /// Where no route attribute is in sight, the `method` key has to say it.
    fn by_hand(method: &MethodKey, errors: &mut Errors) -> Result<Self, Reported> {
        match method {
            Some(Ok((method, _))) => Ok(Self { methods: vec![*method], routes: Vec::new() }),
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
    /// The value of `name = "…"`.
    resource: Option<String>,
    /// Each with the tokens that name it.
    methods: Vec<(String, TokenStream)>,
}

/// The attributes that are named for their method.
const OF_ONE_METHOD: &str = "get head options trace connect query post put patch delete";

impl RouteAttribute {
    fn of(attribute: &Attribute) -> Option<Self> {
        let name = attribute.path().segments.last()?.ident.clone();
        let known = name.to_string();
        let (path, resource, methods) = match &attribute.meta {
            Meta::List(list) => {
                let mut entries = entry::split(list.tokens.clone()).into_iter();
                let path: LitStr = syn::parse2(entries.next()?.into_iter().collect()).ok()?;
                let entries: Vec<_> = entries.filter_map(|tokens| Entry::parse(&tokens)).collect();
                let methods = match known.as_str() {
                    "route" => entries.iter().filter_map(listed_method).collect(),
                    known if OF_ONE_METHOD.split(' ').any(|own| own == known) => {
                        vec![(known.to_ascii_uppercase(), name.to_token_stream())]
                    }
                    _ => return None,
                };
                let resource = entries.iter().find(|entry| entry.key == "name").and_then(Entry::string);
                (Some(path.value()), resource.map(|resource| resource.value()), methods)
            }
            Meta::Path(_) if known == "routes" => (None, None, Vec::new()),
            Meta::Path(_) | Meta::NameValue(_) => return None,
        };
        Some(Self { name, path, resource, methods })
    }
}

/// The `method = "POST"` of `#[route]`. That it must be written in capitals is actix-web's to say.
fn listed_method(entry: &Entry) -> Option<(String, TokenStream)> {
    let literal = (entry.key == "method").then(|| entry.string())??;
    let name = literal.value().to_ascii_uppercase();
    Some((name, literal.to_token_stream()))
}

#[cfg(test)]
mod tests {
    use syn::{Attribute, parse_quote};

    use super::{Method, Route, Routing};
    use crate::errors::Errors;

    fn routing(attributes: &[Attribute]) -> Option<Routing> {
        Routing::of(attributes, &None, &mut Errors::default()).ok()
    }

    fn route(method: Method, path: &str, resource: Option<&str>) -> Route {
        Route { method, path: path.to_owned(), resource: resource.map(str::to_owned) }
    }

    #[test]
    fn a_route_attribute_is_known_by_its_last_segment() {
        for attribute in [
            parse_quote!(#[post("/pay")]),
            parse_quote!(#[actix_web::post("/pay", wrap = "Log")]),
            parse_quote!(#[route("/pay", method = "POST", guard = "fits")]),
            parse_quote!(#[::actix_web::route("/pay", method = "POST", method = "POST")]),
            parse_quote!(#[route("/pay", method = "post")]),
        ] {
            let routes = vec![route(Method::POST, "/pay", None)];
            assert_eq!(routing(&[attribute]), Some(Routing { methods: vec![Method::POST], routes }));
        }
        let named = routing(&[parse_quote!(#[post("", wrap = "Log", name = "payments")])]).unwrap();
        assert_eq!(named.routes, [route(Method::POST, "", Some("payments"))]);
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
        assert_eq!(methods, ["PUT", "PATCH"]);
        let routes: Vec<_> = routing.routes.iter().map(|route| (route.method.name, &*route.path)).collect();
        assert_eq!(routes, [("PUT", "/a"), ("PATCH", "/b"), ("PUT", "/c")]);
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
