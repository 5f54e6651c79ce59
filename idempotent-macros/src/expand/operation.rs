//! The description of the operation, and how lookups find the scope of another request.

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
    let (routing, scope) = (&validated.routing, scope_for_lookup(args, handler, &validated.scope));
    let extractors = extractors(handler, &validated.scope);
    let (durations, rules) = (durations(args), rules(args));
    let (krate, name) = (args.krate(), args.name.value().map_or("", String::as_str));
    let key_from = key_source(args).map(|source| quote!(key_from: #source,));
    let transaction = validate::transaction::in_tuple(handler);
    let handler = handler.signature.ident.unraw().to_string();
    let routes = routes(routing, &handler);
    let key = variant(args.key.value().unwrap_or(&"Required"));
    let claim = variant(args.claim.value().unwrap_or(&"Lease"));
    let tx = transaction.map(|tx| quote!(tx: #tx,));
    let fingerprint = variant(match args.fingerprint.value() {
        None => "Raw",
        Some(Comparison::Supplied(supplied)) => supplied,
        Some(Comparison::Custom(_)) => "Custom",
    });
    let part = args.json_part().map(|(part, pointers)| {
        let part = variant(part);
        quote!(part: #part[#(#pointers),*],)
    });
    quote! {
        #krate::__private::operation! {
            name: #name, handler: #handler, routes: [#(#routes),*],
            durations: [#(#durations),*], rules: [#(#rules),*],
            key: #key, fingerprint: #fingerprint, claim: #claim, scope: [#scope],
            extractors: [#(#extractors),*], #key_from #part #tx
        }
    }
}

/// The keys that set a duration of the operation, which have the names of its fields.
fn durations(args: &Args) -> impl Iterator<Item = TokenStream> {
    let keys = [&args.ttl, &args.lease, &args.wait, &args.timeout].into_iter();
    let written = keys.filter_map(Setting::written);
    written.map(|Written { key, value, .. }| quote!(#key #value))
}

/// The keys that set a rule of the operation, which have the names of its fields, and the types of
/// the rules.
fn rules(args: &Args) -> impl Iterator<Item = TokenStream> {
    let keys = [
        (&args.query, "QueryForm"),
        (&args.content_type, "ContentTypeForm"),
        (&args.record, "RecordRule"),
        (&args.abandoned, "OnAbandon"),
        (&args.in_flight, "InFlightRule"),
    ];
    let written = keys.into_iter().filter_map(|(key, kind)| Some((key.written()?, kind)));
    written.map(|(Written { key, value, .. }, kind)| {
        let [kind, value] = [kind, *value].map(variant);
        quote!(#key #kind #value)
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
    let request = local("__request");
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
            let krate = krate_at(args, path.span());
            let scope = quote_spanned!(path.span()=> #krate::__private::scope_by(#request, #path));
            quote!(Function(|#request| #scope))
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
fn extractors<'a>(
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
