//! Generates the code. Only this module does.

mod operation;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{GenericParam, ReturnType, Signature, parse_quote, parse_quote_spanned};

use crate::errors::Errors;
use crate::model::attributes;
use crate::model::handler::{Handler, Parameter, Unparsed};
use crate::model::route::{self, Routing};
use crate::parse::key_from::KeyPlace;
use crate::parse::keys::Args;
use crate::parse::values::Comparison;
use crate::validate::scope::ScopeSource;
use crate::validate::{self, Validated};

/// Expands the attribute, and appends a `compile_error!` for each mistake.
pub(crate) fn idempotent(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let expanded = checked(attribute, item, &mut errors);
    let errors = errors.into_tokens();
    quote!(#expanded #errors)
}

/// The guarded handler; after a mistake, an item that causes no further messages in the crate.
pub(crate) fn checked(
    attribute: TokenStream,
    item: TokenStream,
    errors: &mut Errors,
) -> TokenStream {
    let args = Args::parse(attribute, errors);
    let Ok(handler) = validate::handler(item.clone(), &args, errors) else {
        return outline(item.clone()).unwrap_or(item);
    };
    let before = errors.count();
    validate::signature(&handler, &args, errors);
    let supported = errors.count() == before;
    match validate::operation(&args, &handler, errors) {
        Ok(validated) if errors.count() == 0 => guarded(&args, &handler, &validated),
        _ if supported => original(&handler),
        _ => stand_in(&handler),
    }
}

/// The unguarded function, followed by the guarded handler.
fn guarded(args: &Args, handler: &Handler, validated: &Validated<'_>) -> TokenStream {
    let unguarded = unguarded(handler);
    let (outer, nested) = (attributes::outer(handler), nested(handler));
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let guard = guard_parameter(args, handler, &validated.routing);
    let parameters = parameters(handler);
    let (start, _) = response_span(signature);
    let krate = krate_at(args, start);
    // Not `async`: `run` already returns a future, and a second one would cost compile time.
    let guarded = Signature {
        asyncness: None,
        inputs: parse_quote!(#guard, #(#parameters),*),
        output: parse_quote_spanned!(start=> -> #krate::__private::Response),
        ..signature.clone()
    };
    let over = handler.parameters.len() == CLIPPY_LIMIT;
    let allow = over.then(|| quote!(#[allow(clippy::too_many_arguments)]));
    let run = run(args, handler, validated);
    // Lints skip an item whose last token comes from a macro, so the braces get the span of the
    // user's braces.
    let block = quote_spanned!(body.span()=> { #nested #run });
    quote!(#unguarded #allow #(#outer)* #visibility #guarded #block)
}

/// The name of the function that the guarded handler calls. With a route attribute it is the
/// unguarded function. Without one the handler may be an associated function, which cannot name its
/// neighbors without `Self`, so it calls a nested function.
fn callee(handler: &Handler) -> Ident {
    if route::is_routed(handler) {
        handler.unguarded_name()
    } else {
        handler.signature.ident.clone()
    }
}

/// The user's function, nested in the guarded handler, if the handler has no route attribute. With
/// one, the guarded handler calls the unguarded function instead.
fn nested(handler: &Handler) -> Option<TokenStream> {
    let (inner, signature, body) = (attributes::inner(handler), &handler.signature, &handler.body);
    (!route::is_routed(handler)).then(|| quote!(#(#inner)* #signature #body))
}

/// A function that calls the user's function without the guard. The user's function is nested in
/// it: outside, a route attribute makes the handler's name a unit struct, and a binding of that
/// name in the user's code would then match the struct instead.
///
/// Without a route attribute this is a second copy, compiled for the user's unit tests only.
fn unguarded(handler: &Handler) -> TokenStream {
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let (shared, inner) = (attributes::shared(handler), attributes::inner(handler));
    let name = &signature.ident;
    let doc = format!(" The handler `{name}` without its idempotency guard, for unit tests.");
    let parameters = parameters(handler);
    let output = match &signature.output {
        ReturnType::Type(_, ty) => ty.to_token_stream(),
        ReturnType::Default => quote!(()),
    };
    let outer = Signature {
        asyncness: None,
        ident: handler.unguarded_name(),
        inputs: parse_quote!(#(#parameters),*),
        output: parse_quote!(-> impl ::core::future::Future<Output = #output>),
        ..signature.clone()
    };
    let call = call(handler, name);
    // `allow(warnings)` is accepted where the crate forbids a lint; the name of a lint is not.
    let attributes = (!route::is_routed(handler)).then(|| quote!(#[cfg(test)] #[allow(warnings)]));
    quote! {
        #[doc = #doc]
        #attributes
        #(#shared)*
        #visibility #outer {
            #(#inner)* #signature #body
            #call
        }
    }
}

fn parameters(handler: &Handler) -> impl Iterator<Item = TokenStream> {
    let parameters = handler.parameters.iter();
    parameters.map(|Parameter { cfg, name, ty, .. }| quote!(#(#cfg)* #name: #ty))
}

/// The most parameters that `clippy::too_many_arguments` accepts. A handler with this many exceeds
/// the limit once the guard is added.
const CLIPPY_LIMIT: usize = 7;

/// The guard is the first parameter, so that it buffers the body before other extractors read it.
fn guard_parameter(args: &Args, handler: &Handler, routing: &Routing) -> TokenStream {
    let krate = args.krate();
    let marker = |name: &str| {
        let name = variant(name);
        quote!(#krate::__private::#name)
    };
    let methods: Vec<_> = routing.methods.iter().map(|method| marker(method.marker)).collect();
    let methods = match methods.as_slice() {
        [method] => method.clone(),
        methods => quote!((#(#methods),*)),
    };
    let mut body = marker(match args.fingerprint.value() {
        None => "Raw",
        Some(Comparison::Supplied(_)) if args.json_part().is_some() => "Whole",
        Some(Comparison::Supplied(supplied)) => supplied,
        Some(Comparison::Custom(_)) => "Whole",
    });
    for form in [args.query.value(), args.content_type.value()] {
        let form = match form {
            None | Some(&"Exact") => continue,
            Some(&"Ignored") => marker("AnyType"),
            Some(form) => marker(form),
        };
        body = quote!(#form<#body>);
    }
    let (guard, key) = (local("__guard"), marker(args.key.value().unwrap_or(&"Required")));
    let origin = key_source(args).map(|source| {
        let handler = handler.signature.ident.unraw().to_string();
        quote!(, #krate::__private::key_from!(#source in #handler))
    });
    quote!(#guard: #krate::__private::Guard<#key, #methods, #body #origin>)
}

/// The source of the keys, if the attribute names one.
fn key_source(args: &Args) -> Option<TokenStream> {
    Some(match args.key_from.value()? {
        KeyPlace::Supplied(place, name) => {
            let place = variant(place.variant);
            quote!(#place(#name))
        }
        KeyPlace::Custom(path) => quote!(Function(#path)),
    })
}

/// The body of the guarded handler. Its spans decide where rustc reports unmet bounds: those of the
/// scope at the parameter's type or at the path, those of the response at the return type.
fn run(args: &Args, handler: &Handler, validated: &Validated<'_>) -> TokenStream {
    let (guard, operation_name, scope_name) =
        (local("__guard"), local("__operation"), local("__scope"));
    let operation = operation::declaration(args, handler, validated);
    let (start, _) = response_span(&handler.signature);
    let scope = match &validated.scope {
        ScopeSource::Parameter(Parameter { name, ty, .. }) => {
            let (krate, name) = (krate_at(args, ty.span()), at(name, ty.span()));
            quote_spanned!(ty.span()=> #krate::__private::scope_of(&#name))
        }
        // The operation has the function already.
        ScopeSource::Function(_) if handler.has_static_types() => {
            quote!(#guard.scope(#operation_name))
        }
        ScopeSource::Function(path) => {
            let krate = krate_at(args, path.span());
            quote_spanned!(path.span()=> #krate::__private::scope_by(#guard.request(), #path))
        }
    };
    let fingerprint = match args.fingerprint.value() {
        None | Some(Comparison::Supplied(_)) => None,
        Some(Comparison::Custom(path)) => {
            Some(quote_spanned!(path.span()=> .fingerprint_by(#path)))
        }
    };
    let call = call(handler, &callee(handler));
    let receiver = at(&guard, start);
    let run =
        quote_spanned!(start=> #receiver #fingerprint.run(#operation_name, #scope_name, #call));
    quote! {
        let #operation_name = #operation;
        let #scope_name = #scope;
        #run
    }
}

/// Calls `function` with the handler's parameters. The call's span is that of the return type.
fn call(handler: &Handler, function: &Ident) -> TokenStream {
    let (start, end) = response_span(&handler.signature);
    let name = at(function, start);
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

/// The handler without its guard, under both names, so that code that uses either name compiles.
fn original(handler: &Handler) -> TokenStream {
    let unguarded = unguarded(handler);
    let outer = attributes::outer(handler);
    let parameters = parameters(handler);
    let (visibility, signature) = (&handler.visibility, &handler.signature);
    let signature = Signature { inputs: parse_quote!(#(#parameters),*), ..signature.clone() };
    let (nested, call) = (nested(handler), call(handler, &callee(handler)));
    quote!(#unguarded #(#outer)* #visibility #signature { #nested #call.await })
}

/// Replaces a function that cannot be parsed with one that has its name and route attributes, so
/// that no other attribute reports the same error. `None` for any other item.
fn outline(item: TokenStream) -> Option<TokenStream> {
    let item: Unparsed = syn::parse2(item).ok()?;
    let (visibility, name) = (&item.visibility, item.function_name()?);
    let routes = item.attributes.iter().filter(|attribute| route::is_route(attribute));
    Some(quote!(#(#routes)* #visibility async fn #name() -> &'static ::core::primitive::str { "" }))
}

/// Replaces a function that cannot be a handler with one that can, so that its registration causes
/// no further messages. rustc still checks the body.
fn stand_in(handler: &Handler) -> TokenStream {
    let (visibility, signature, body) = (&handler.visibility, &handler.signature, &handler.body);
    let (mut outer, inner) = (attributes::outer(handler), attributes::inner(handler));
    if signature.receiver().is_some() || handler.self_type().is_some() {
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

/// The spans of the first and last token of the return type, or of the handler's name.
fn response_span(signature: &Signature) -> (Span, Span) {
    let tokens = match &signature.output {
        ReturnType::Type(_, ty) => ty.to_token_stream(),
        ReturnType::Default => signature.ident.to_token_stream(),
    };
    let mut spans = tokens.into_iter().map(|token| token.span());
    let start = spans.next().unwrap_or_else(Span::call_site);
    (start, spans.last().unwrap_or(start))
}

/// The path to the runtime crate, with `span`.
fn krate_at(args: &Args, span: Span) -> TokenStream {
    let mut krate: Vec<_> = args.krate().to_token_stream().into_iter().collect();
    krate.iter_mut().for_each(|token| token.set_span(span));
    krate.into_iter().collect()
}

/// `name` at the location of `span`, with its hygiene unchanged.
fn at(name: &Ident, span: Span) -> Ident {
    let mut name = name.clone();
    name.set_span(span.resolved_at(name.span()));
    name
}

fn variant(name: &str) -> Ident {
    format_ident!("{name}")
}

/// A hygienic name, which cannot collide with a name in the user's code.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}
