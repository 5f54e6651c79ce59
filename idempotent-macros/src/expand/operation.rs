//! The description of the operation, and how lookups find the scope of another request.

use std::env;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::{at, key_source, krate_at, local, variant};
use crate::model::handler::{Handler, Parameter};
use crate::model::route::Routing;
use crate::parse::entry::{Setting, Written};
use crate::parse::keys::Args;
use crate::parse::values::Comparison;
use crate::validate::scope::ScopeSource;
use crate::validate::{self, Validated};

/// The static description of the operation, which is also part of the app's specification.
pub(super) fn declaration(
    args: &Args,
    handler: &Handler,
    validated: &Validated<'_>,
) -> TokenStream {
    let (krate, package) = (args.krate(), package(args));
    let (routing, scope) = (&validated.routing, scope_for_lookup(args, handler, &validated.scope));
    let parameters = parameters(handler, &validated.scope);
    let tx = validate::transaction::in_tuple(handler).map(|tx| quote!(with #tx));
    let name = handler.signature.ident.unraw().to_string();
    let (routes, set) = (routes(routing, &name), set(args, &name));
    quote! {
        #krate::__private::operation! {
            package: #package, handler: #name, routes: [#(#routes),*], scope: [#scope],
            parameters: [#(#parameters),*] #tx, set: [#set],
        }
    }
}

/// Cargo's name for the package; without Cargo, the name of the crate.
fn package(args: &Args) -> TokenStream {
    let krate = args.krate();
    match env::var("CARGO_PKG_NAME") {
        Ok(name) => quote!(#name),
        Err(_) => quote!(#krate::__private::crate_of(::core::module_path!())),
    }
}

/// A call for each key of the attribute that sets a value of the operation.
fn set(args: &Args, handler: &str) -> TokenStream {
    let krate = args.krate();
    let name = args.name.value().map(|name| quote!(.name(#name)));
    let key = args.key.value().filter(|key| **key == "Optional").map(|_| quote!(.optional_key()));
    let key_from = key_source(args).map(|source| {
        quote!(.key_from(
            #krate::__private::source_id!(#source in #handler),
            #krate::__private::key_source!(#source),
        ))
    });
    let fingerprint =
        fingerprint(args).map(|form| quote!(.fingerprint(#krate::__private::Fingerprint::#form)));
    let claim = args.claim.value().map(|claim| {
        let claim = variant(claim);
        quote!(.claim(#krate::__private::ClaimMode::#claim))
    });
    let (durations, rules) = (durations(args), rules(args));
    quote!(#name #key #key_from #fingerprint #claim #(#durations)* #(#rules)*)
}

/// How the body contributes to the fingerprint, if an attribute states it.
fn fingerprint(args: &Args) -> Option<TokenStream> {
    if let Some((part, pointers)) = args.json_part() {
        let (krate, part) = (args.krate(), variant(part));
        return Some(quote!(JsonPart(#krate::__private::JsonPart::#part(&[#(#pointers),*]))));
    }
    let form = match args.fingerprint.value()? {
        Comparison::Supplied(supplied) => variant(supplied),
        Comparison::Custom(_) => variant("Custom"),
    };
    Some(quote!(#form))
}

/// The keys that set a duration of the operation, whose methods have their names.
fn durations(args: &Args) -> impl Iterator<Item = TokenStream> {
    let keys = [&args.ttl, &args.lease, &args.wait, &args.timeout].into_iter();
    let written = keys.filter_map(Setting::written);
    written.map(|Written { key, value, .. }| quote!(.#key(#value)))
}

/// The keys that set a rule of the operation, whose methods have their names, and the types of the
/// rules.
fn rules(args: &Args) -> impl Iterator<Item = TokenStream> {
    let keys = [
        (&args.query, "QueryForm"),
        (&args.content_type, "ContentTypeForm"),
        (&args.record, "RecordRule"),
        (&args.abandoned, "OnAbandon"),
        (&args.in_flight, "InFlightRule"),
    ];
    let krate = args.krate();
    let written = keys.into_iter().filter_map(|(key, kind)| Some((key.written()?, kind)));
    written.map(move |(Written { key, value, .. }, kind)| {
        let [kind, value] = [kind, *value].map(variant);
        quote!(.#key(#krate::__private::rules::#kind::#value))
    })
}

/// The function that finds the scope of another request, for lookups. It contains the same call as
/// the handler, so that rustc reports an unmet bound once. `None` if lookups cannot find it.
fn scope_for_lookup(
    args: &Args,
    handler: &Handler,
    scope: &ScopeSource<'_>,
) -> Option<TokenStream> {
    if !handler.has_static_types() {
        return None;
    }
    Some(match scope {
        ScopeSource::Parameter(parameter) if parameter.cfg.is_empty() => {
            parameter_scope(args, parameter)
        }
        // Alternatives of `cfg` may have different types.
        ScopeSource::Parameter(Parameter { name, .. }) => {
            let same = handler.parameters.iter().filter(|parameter| parameter.name == *name);
            let alternatives = same.map(|parameter| {
                let (cfg, scope) = (&parameter.cfg, parameter_scope(args, parameter));
                quote!(#(#cfg)* (#scope))
            });
            quote!(Alternatives #(#alternatives)*)
        }
        ScopeSource::Function(path) => {
            let (krate, span) = (krate_at(args, path.span()), path.span());
            let scope = quote_spanned!(span=> #krate::__private::scope_function(&#path));
            quote!(Function(#scope))
        }
    })
}

fn parameter_scope(args: &Args, Parameter { name, ty, .. }: &Parameter) -> TokenStream {
    let (request, name) = (local("__request"), at(name, ty.span()));
    let krate = krate_at(args, ty.span());
    let scope = quote_spanned!(ty.span()=> #krate::__private::scope_of(&#name));
    let scope = quote!(|#name: #ty| #scope);
    let find = quote!(#krate::__private::scope_of_request(#request, #scope));
    let found = args.poll().map(|_| variant("Found"));
    quote!(#found Parameter(|#request| #find) of #ty)
}

/// The types of the other parameters, whose extractors a lookup runs.
fn parameters<'a>(
    handler: &'a Handler,
    scope: &'a ScopeSource<'_>,
) -> impl Iterator<Item = TokenStream> {
    let others = handler.parameters.iter().filter(move |parameter| {
        let is_scope =
            matches!(scope, ScopeSource::Parameter(scope) if scope.name == parameter.name);
        !is_scope && handler.has_static_types()
    });
    others.map(|Parameter { cfg, ty, .. }| quote!(#(#cfg)* #ty))
}

/// Method, path and resource of each route; only the method if there is no route attribute.
fn routes(routing: &Routing, handler: &str) -> Vec<TokenStream> {
    if routing.routes.is_empty() {
        let methods = routing.methods.iter().map(|method| method.name);
        return methods.map(|method| quote!((#method))).collect();
    }
    let routes = routing.routes.iter().map(|route| {
        let (method, path) = (route.method.name, &route.path);
        let resource = route.resource.as_deref().unwrap_or(handler);
        quote!((#method, #path, #resource))
    });
    routes.collect()
}
