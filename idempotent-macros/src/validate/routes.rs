//! The routes of a handler and the `method` key.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, parse_quote};

use crate::errors::{Errors, Reported};
use crate::model::route::{self, HandlerRoute, RouteAttribute, Routing};
use crate::parse::entry::{Setting, Written};
use crate::parse::method::{Method, cannot_be_guarded};

const EXAMPLE: &str =
    "write `#[post(\"/v1/payments\")]` or `#[route(\"/v1/payments\", method = \"POST\")]`";

/// Combines the route attributes with the `method` key.
pub(crate) fn routing(
    attributes: &[Attribute],
    key: &Setting<Method>,
    errors: &mut Errors,
) -> Result<Routing, Reported> {
    let attributes: Vec<_> = attributes.iter().filter_map(RouteAttribute::of).collect();
    let first = attributes.first();
    let routing = first.map(|first| attribute_routing(first, &attributes, errors)).transpose()?;
    let key = match key {
        Setting::Unset => None,
        Setting::Invalid { reported, .. } => return Err(*reported),
        Setting::Set(written) => Some(written),
    };
    match (routing, key) {
        (Some(routing), Some(Written { value: method, literal, .. }))
            if routing.methods != [*method] =>
        {
            let own: Vec<_> = routing.methods.iter().map(|own| own.name).collect();
            let (own, given) = (own.join("` and `"), method.name);
            let what = format!(
                "`{given}` contradicts the route attribute, which has `{own}`; remove `method`"
            );
            let help = "write `method` only for a handler without a route attribute, \
                as in `web::post().to(handler)`";
            Err(errors.at(literal, what, help))
        }
        (Some(routing), _) => Ok(routing),
        (None, Some(key)) => Ok(Routing { methods: vec![key.value], routes: Vec::new() }),
        (None, None) => {
            let what = "the handler's method is unknown, because no route attribute is below \
                `#[idempotent]`; place the route attribute below it, or add `method` if the \
                handler is registered with `web::post().to(…)`";
            let help = "write `#[post(\"/v1/payments\")]` on the next line, \
                or `#[idempotent(…, method = \"POST\")]`";
            Err(errors.at(TokenStream::new(), what, help))
        }
    }
}

/// Reports a route attribute whose path is not a literal, and gives it one, so that it causes no
/// further messages.
pub(super) fn literal_path(attribute: &mut Attribute, errors: &mut Errors) {
    let Some(path) = route::path_without_literal(attribute) else { return };
    let name = attribute.path().clone();
    let what = "the path of a route attribute is a string literal; write the path itself, or \
        register the handler with `web::post().to(…)` and write `method = \"POST\"`";
    errors.at(path, what, EXAMPLE);
    let method = (route::is_named_route(&name)).then(|| quote!(, method = "POST"));
    *attribute = parse_quote!(#[#name("/" #method)]);
}

fn attribute_routing(
    first: &RouteAttribute,
    attributes: &[RouteAttribute],
    errors: &mut Errors,
) -> Result<Routing, Reported> {
    let (mut methods, mut routes) = (Vec::new(), Vec::new());
    let mut refused = Ok(());
    for attribute in attributes {
        for (name, at) in &attribute.methods {
            let Some(method) = Method::named(name) else {
                refused = Err(errors.at(at, cannot_be_guarded(name), EXAMPLE));
                continue;
            };
            if !methods.contains(&method) {
                methods.push(method);
            }
            let (path, resource) = (attribute.path.clone(), attribute.resource.clone());
            let route = HandlerRoute { method, path, resource };
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    refused?;
    if methods.is_empty() {
        let name = &first.name;
        let what = format!("`#[{name}]` lists no method; add the methods that the handler serves");
        let help = "write `#[route(\"/v1/payments\", method = \"POST\")]`, \
            or `#[post(\"/v1/payments\")]` below `#[routes]`";
        return Err(errors.at(name, what, help));
    }
    Ok(Routing { methods, routes })
}

#[cfg(test)]
mod tests {
    use syn::{Attribute, parse_quote};

    use super::{HandlerRoute, Method, Routing, Setting, Written};
    use crate::errors::Errors;

    fn routing(attributes: &[Attribute]) -> Option<Routing> {
        super::routing(attributes, &Setting::Unset, &mut Errors::default()).ok()
    }

    fn route(method: Method, path: &str, resource: Option<&str>) -> HandlerRoute {
        HandlerRoute { method, path: path.to_owned(), resource: resource.map(str::to_owned) }
    }

    #[test]
    fn a_route_attribute_is_recognized_by_the_last_segment_of_its_path() {
        for attribute in [
            parse_quote!(#[post("/pay")]),
            parse_quote!(#[actix_web::post("/pay", wrap = "Log")]),
            parse_quote!(#[route("/pay", method = "POST", guard = "fits")]),
            parse_quote!(#[::actix_web::route("/pay", method = "POST", method = "POST")]),
            parse_quote!(#[route("/pay", method = "post")]),
        ] {
            let routes = vec![route(Method::POST, "/pay", None)];
            assert_eq!(
                routing(&[attribute]),
                Some(Routing { methods: vec![Method::POST], routes })
            );
        }
        let named = routing(&[parse_quote!(#[post("", wrap = "Log", name = "payments")])]).unwrap();
        assert_eq!(named.routes, [route(Method::POST, "", Some("payments"))]);
    }

    #[test]
    fn a_handler_with_routes_has_the_routes_of_all_its_attributes() {
        let attributes: [Attribute; 4] = [
            parse_quote!(#[routes]),
            parse_quote!(#[put("/a")]),
            parse_quote!(#[patch("/b")]),
            parse_quote!(#[put("/c")]),
        ];
        let routing = routing(&attributes).unwrap();
        let methods: Vec<_> = routing.methods.iter().map(|method| method.name).collect();
        assert_eq!(methods, ["PUT", "PATCH"]);
        let routes: Vec<_> =
            routing.routes.iter().map(|route| (route.method.name, &*route.path)).collect();
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
    fn the_method_key_must_agree_with_the_route_attribute() {
        let literal = parse_quote!("POST");
        let post =
            Setting::Set(Written { key: parse_quote!(method), value: Method::POST, literal });
        for (attributes, agrees) in [
            (vec![], true),
            (vec![parse_quote!(#[post("/")])], true),
            (vec![parse_quote!(#[put("/")])], false),
            (vec![parse_quote!(#[route("/", method = "POST", method = "PUT")])], false),
        ] {
            let routing = super::routing(&attributes, &post, &mut Errors::default());
            assert_eq!(routing.is_ok(), agrees);
        }
    }
}
