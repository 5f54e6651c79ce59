//! Code for a handler: the only place where any is quoted.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, GenericParam, PathSegment, ReturnType, Signature, Visibility, parse_quote, parse_quote_spanned};

use crate::args::{Args, Fingerprint};
use crate::errors::Errors;
use crate::handler::{Handler, Parameter, Scope, is_function_with_body};
use crate::route::{self, Routing};
use crate::transaction;

/// The whole attribute: from what was written to what the compiler sees.
pub(crate) fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = checked(attribute, item, &mut errors);
    let errors = errors.into_tokens();
    quote!(#expanded #errors)
}

/// The guarded handler, or, once `errors` holds anything, what stands beside the messages: something that
/// gives the rest of the crate no cause for more of them.
pub(crate) fn checked(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> TokenStream {
    let args = Args::parse(attribute, errors);
    let Ok(mut handler) = Handler::read(item.clone(), errors) else {
        return outline(item.clone()).unwrap_or(item);
    };
    handler.refuse_second_guard(errors);
    let supported = handler.refuse_unsupported(errors);
    let supported = supported.and(transaction::check(&handler, args.transaction.as_ref(), errors));
    let routing = Routing::of(&handler.attributes, &args.method, errors);
    let scope = args.scope.as_ref().map_err(|&reported| reported);
    let scope = scope.and_then(|scope| handler.scope(scope, errors));
    match (scope, routing) {
        (Ok(scope), Ok(routing)) if errors.is_empty() => guarded(&args, &handler, &routing, &scope),
        _ if supported.is_ok() => original(&handler),
        _ => stand_in(&handler),
    }
}

/// The handler with the guard around it.
fn guarded(args: &Args, handler: &Handler, routing: &Routing, scope: &Scope<'_>) -> TokenStream {
    let (outer, inner) = attributes(handler);
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let guard = guard_parameter(args, routing);
    let parameters = handler.parameters.iter();
    let parameters = parameters.map(|Parameter { cfg, name, ty, .. }| quote!(#(#cfg)* #name: #ty));
    let (start, _) = answer_span(signature);
    let krate = krate_at(args, start);
    // Not `async`: `run` gives a future already, and rustc takes its time over each one that it has to make.
    let guarded = Signature {
        asyncness: None,
        inputs: parse_quote!(#guard, #(#parameters),*),
        output: parse_quote_spanned!(start=> -> #krate::__private::Answer),
        ..signature.clone()
    };
    let over = handler.parameters.len() == CLIPPYS_LIMIT;
    let allow = over.then(|| quote!(#[allow(clippy::too_many_arguments)]));
    let run = run(args, handler, routing, scope);
    // Lints are silent about an item that ends in a macro's tokens, so these braces are the user's own.
    let block = quote_spanned!(body.span()=> { #(#inner)* #signature #body #run });
    quote!(#allow #(#outer)* #visibility #guarded #block)
}

/// A handler with this many parameters is within the lint's limit, and the guard takes it over. With more
/// the user has the lint's message, or an `allow`, already.
const CLIPPYS_LIMIT: usize = 7;

/// actix-web extracts it first, so it sees the body before the handler's own extractors do.
fn guard_parameter(args: &Args, routing: &Routing) -> TokenStream {
    let krate = &args.krate;
    let guard = local("__guard");
    let key = variant(args.key);
    let methods = routing.methods.iter();
    let methods: Vec<_> = methods.map(|method| variant(method.marker)).collect();
    let methods = match methods.as_slice() {
        [method] => quote!(#krate::__private::#method),
        methods => quote!((#(#krate::__private::#methods),*)),
    };
    let body = variant(match args.fingerprint {
        Fingerprint::Supplied("Json") => "Json",
        Fingerprint::Supplied("Nothing") => "Ignored",
        Fingerprint::Supplied(_) => "Raw",
        Fingerprint::Custom(_) => "Whole",
    });
    quote!(#guard: #krate::__private::Guard<#krate::__private::#key, #methods, #krate::__private::#body>)
}

/// A reference to the static description of the operation, which also enters the app's specification.
fn operation(args: &Args, handler: &Handler, routing: &Routing) -> TokenStream {
    let (krate, name) = (&args.krate, &args.name);
    let [ttl, lease, wait, timeout] = [args.ttl, args.lease, args.wait, args.timeout];
    let handler = handler.signature.ident.unraw().to_string();
    let routes = routes(routing, &handler);
    let claim = if args.transaction.is_some() { "Transaction" } else { "Lease" };
    let [key, record, abandoned, claim] = [args.key, args.record, args.abandoned, claim].map(variant);
    let fingerprint = variant(match args.fingerprint {
        Fingerprint::Supplied(supplied) => supplied,
        Fingerprint::Custom(_) => "Custom",
    });
    quote! {
        #krate::__private::operation! {
            name: #name, handler: #handler, routes: [#(#routes),*],
            ttl: #ttl, lease: #lease, wait: #wait, timeout: #timeout,
            key: #key, fingerprint: #fingerprint, record: #record, abandoned: #abandoned, claim: #claim,
        }
    }
}

/// Method, path and resource of each route; the method alone where the handler is routed by hand.
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

/// Finds the scope and runs the handler. Spans decide where rustc reports what a trait refuses: a scope at
/// the parameter's type or at the path, an answer at the handler's return type.
fn run(args: &Args, handler: &Handler, routing: &Routing, scope: &Scope<'_>) -> TokenStream {
    let (guard, operation_name) = (local("__guard"), local("__operation"));
    let operation = operation(args, handler, routing);
    let (start, _) = answer_span(&handler.signature);
    let scope = match scope {
        Scope::Parameter(Parameter { name, ty, .. }) => {
            let (krate, name) = (krate_at(args, ty.span()), at(name, ty.span()));
            quote_spanned!(ty.span()=> #krate::__private::scope_of(&#name))
        }
        Scope::Path(path) => {
            let krate = krate_at(args, path.span());
            quote_spanned!(path.span()=> #krate::__private::scope_by(#guard.request(), #path))
        }
    };
    let fingerprint = match &args.fingerprint {
        Fingerprint::Supplied(_) => None,
        Fingerprint::Custom(path) => Some(quote_spanned!(path.span()=> .fingerprint_by(#path))),
    };
    let call = call(handler);
    let scope_name = local("__scope");
    let receiver = at(&guard, start);
    let run = quote_spanned!(start=> #receiver #fingerprint.run(#operation_name, #scope_name, #call));
    quote! {
        let #operation_name = #operation;
        let #scope_name = #scope;
        #run
    }
}

/// The call of the user's own function. It reaches from the first token of the return type to the last one.
fn call(handler: &Handler) -> TokenStream {
    let (start, end) = answer_span(&handler.signature);
    let name = at(&handler.signature.ident, start);
    let arguments = handler.parameters.iter();
    let arguments = arguments.map(|Parameter { cfg, name, .. }| quote!(#(#cfg)* #name));
    let arguments = quote_spanned!(end=> (#(#arguments),*));
    let generics = handler.signature.generics.params.iter();
    let generics = generics.filter_map(|parameter| match parameter {
        GenericParam::Type(parameter) => Some(&parameter.ident),
        GenericParam::Const(parameter) => Some(&parameter.ident),
        GenericParam::Lifetime(_) => None,
    });
    let generics: Vec<_> = generics.collect();
    let turbofish = (!generics.is_empty()).then(|| quote!(::<#(#generics),*>));
    quote!(#name #turbofish #arguments)
}

/// The handler as it was written, so that nothing else in the crate misses it.
fn original(handler: &Handler) -> TokenStream {
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let attributes = &handler.attributes;
    quote!(#(#attributes)* #visibility #signature #body)
}

/// In place of a function that cannot be parsed, one of its name and its route: no other attribute reports the same again.
fn outline(item: TokenStream) -> Option<TokenStream> {
    let read = |input: ParseStream<'_>| Ok((input.call(Attribute::parse_outer)?, input.parse()?, input.parse()?));
    let (attributes, visibility, rest): (Vec<_>, Visibility, TokenStream) = read.parse2(item.clone()).ok()?;
    let mut rest = rest.into_iter().skip_while(|token| !matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let name = rest.nth(1).filter(|_| is_function_with_body(item))?;
    let routes = attributes.iter().filter(|attribute| route::is_route(attribute));
    Some(quote!(#(#routes)* #visibility async fn #name() -> &'static ::core::primitive::str { "" }))
}

/// In place of a function that cannot be a handler, one that can: its route attribute and the app that
/// registers it find nothing to add to our message, while the body is still checked.
fn stand_in(handler: &Handler) -> TokenStream {
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let (mut outer, inner) = attributes(handler);
    if signature.receiver().is_some() {
        outer.retain(|attribute| !route::is_route(attribute));
        return quote!(#(#outer)* #(#inner)* #visibility #signature #body);
    }
    let accepted = Signature { constness: None, variadic: None, ..signature.clone() };
    let (name, (generics, _, bounds)) = (&signature.ident, signature.generics.split_for_impl());
    quote! {
        #(#outer)*
        #visibility async fn #name #generics () -> &'static ::core::primitive::str #bounds {
            #[allow(dead_code, improper_ctypes_definitions)]
            #(#inner)*
            #accepted #body
            ""
        }
    }
}

/// Attributes of a function's callers and its documentation, with the `path` of utoipa: no other fits a function.
const OUTSIDE: &str = "doc cfg cfg_attr allow warn deny forbid expect deprecated must_use path";

/// The handler's attributes, parted: those of [`OUTSIDE`] and the route stay on the guarded function, and all
/// others, such as `#[instrument]`, go with the user's own. Lints outside reach inside.
fn attributes(handler: &Handler) -> (Vec<&Attribute>, Vec<&Attribute>) {
    let attributes = handler.attributes.iter();
    attributes.partition(|attribute| {
        let name = attribute.path().segments.last();
        let outside = |name: &PathSegment| OUTSIDE.split(' ').any(|outside| name.ident == outside);
        name.is_some_and(outside) || route::is_route(attribute)
    })
}

/// The first and the last token of the return type; of the handler's name where there is none.
fn answer_span(signature: &Signature) -> (Span, Span) {
    let tokens = match &signature.output {
        ReturnType::Type(_, ty) => ty.to_token_stream(),
        ReturnType::Default => signature.ident.to_token_stream(),
    };
    let mut spans = tokens.into_iter().map(|token| token.span());
    let start = spans.next().unwrap_or_else(Span::call_site);
    (start, spans.last().unwrap_or(start))
}

/// The path of the runtime, reported at `span`.
fn krate_at(args: &Args, span: Span) -> TokenStream {
    let located = args.krate.to_token_stream().into_iter();
    let located = located.map(|mut token| {
        token.set_span(span);
        token
    });
    located.collect()
}

/// `name`, meaning what it means, but reported at `span`.
fn at(name: &Ident, span: Span) -> Ident {
    let mut name = name.clone();
    name.set_span(span.resolved_at(name.span()));
    name
}

fn variant(name: &str) -> Ident {
    format_ident!("{name}")
}

/// A name of ours. It is hygienic, so that no name of the user's can meet it.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
