//! Checks whether a handler can be guarded. Every mistake is reported at the token that causes it.

mod borrows;
mod routes;
pub(crate) mod scope;
pub(crate) mod transaction;

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;

use crate::errors::{Errors, Reported};
use crate::model::handler::{Handler, Parameter, Unparsed};
use crate::model::route::{self, Routing};
use crate::parse::entry::{Setting, Written};
use crate::parse::keys::Args;
use scope::ScopeSource;

/// Handlers of actix-web take at most sixteen parameters, and one of them is the guard.
const MOST_PARAMETERS: usize = 15;

const HANDLER_EXAMPLE: &str = "write `async fn create_payment(user: User) -> HttpResponse { … }`";

/// What the expansion of a handler needs besides its `Args`.
pub(crate) struct Validated<'a> {
    pub(crate) scope: ScopeSource<'a>,
    pub(crate) routing: Routing,
}

/// Parses the handler; reports and removes a second `#[idempotent]`, and reports and completes a
/// route attribute without a literal path.
pub(crate) fn handler(
    item: TokenStream,
    args: &Args,
    errors: &mut Errors,
) -> Result<Handler, Reported> {
    let mut handler: Handler = syn::parse2(item.clone()).map_err(|error| {
        let item = syn::parse2::<Unparsed>(item).ok();
        if item.as_ref().is_some_and(|item| item.function_name().is_some()) {
            return syntax_error(&error, errors);
        }
        let what = "`#[idempotent]` applies to handlers, and this is not one; \
            put it above an `async fn` with a body";
        let keyword = item.as_ref().and_then(|item| item.rest.first());
        errors.at(keyword, what, HANDLER_EXAMPLE)
    })?;
    handler.attributes.retain(|attribute| {
        let path = attribute.path();
        let second = path.segments.last().is_some_and(|name| name.ident == "idempotent");
        if second {
            let what = "`#[idempotent]` is applied twice; remove one of them";
            errors.at(path, what, "write all keys in one `#[idempotent(…)]`");
        }
        !second
    });
    if matches!(args.method, Setting::Unset) && !route::is_routed(&handler) {
        handler.attributes.iter_mut().for_each(|attribute| routes::literal_path(attribute, errors));
    }
    Ok(handler)
}

/// Reports a function that syn cannot parse. rustc parses the function before the macro runs, so it
/// has already reported a parameter without a type.
fn syntax_error(error: &syn::Error, errors: &mut Errors) -> Reported {
    if matches!(error.span().source_text().as_deref(), Some("," | ")")) {
        return Errors::reported_by_rustc();
    }
    let what = format!("this function has a syntax error: {error}");
    errors.at(Ident::new("here", error.span()), what, HANDLER_EXAMPLE)
}

/// Reports every part of the signature that a guarded handler cannot have.
pub(crate) fn signature(handler: &Handler, args: &Args, errors: &mut Errors) {
    qualifiers(handler, errors);
    in_impl(handler, errors);
    if let Some(receiver) = handler.signature.receiver() {
        let what = "a handler cannot take `self`; \
            write a free function that takes the value as an extractor";
        let help = "write `bank: web::Data<Bank>`, outside the `impl` block";
        errors.at(receiver, what, help);
    }
    if let Some(variadic) = &handler.signature.variadic {
        let what = "a handler cannot be variadic; name each parameter";
        errors.at(variadic, what, "write `user: User, body: web::Json<NewPayment>`");
    }
    handler.parameters.iter().for_each(|parameter| owned(parameter, errors));
    if let Some(extra) = handler.parameters.get(MOST_PARAMETERS) {
        let count = handler.parameters.len();
        let what = format!(
            "the handler has {count} parameters, and a guarded one can have {MOST_PARAMETERS}; \
                combine some of them"
        );
        let help = "write a tuple, such as `(user, bank): (User, web::Data<Bank>)`";
        errors.at(&extra.pattern, what, help);
    }
    transaction::check(handler, args.transaction(), errors);
}

/// Finds the scope and the routes, or reports why there are none.
pub(crate) fn operation<'a>(
    args: &Args,
    handler: &'a Handler,
    errors: &mut Errors,
) -> Result<Validated<'a>, Reported> {
    let routing = routes::routing(&handler.attributes, &args.method, errors);
    if let Ok(routing) = &routing {
        key_in_body(args, routing, errors);
        lookup(args, handler, routing, errors);
    }
    let scope = args.scope(errors);
    let scope = scope.and_then(|scope| ScopeSource::of(scope, handler, errors));
    Ok(Validated { scope: scope?, routing: routing? })
}

/// Reports a key in the body of requests that have none (RFC 9110 §9.3.5).
fn key_in_body(args: &Args, routing: &Routing, errors: &mut Errors) {
    let Some(Written { value: source, literal, .. }) = args.key_from.written() else { return };
    if source.in_body() && routing.methods.iter().any(|method| method.name == "DELETE") {
        let what = "`DELETE` requests have no body that could contain the key; \
            write `header:…` or a path to a function";
        errors.at(literal, what, "write `key_from = \"header:webhook-id\"`");
    }
}

/// Reports a handler that sends its clients to a lookup that cannot find it.
fn lookup(args: &Args, handler: &Handler, routing: &Routing, errors: &mut Errors) {
    let Some(literal) = args.poll() else { return };
    if !handler.has_static_types() {
        let what = "a lookup cannot find the operations of a handler with generic parameters \
            or `Self`; write `in_flight = \"conflict\"`, or concrete types";
        errors.at(literal, what, "write `in_flight = \"conflict\"`");
    }
    if args.transaction().is_some() {
        let what = "with `claim = \"transaction\"` a lookup finds an operation only when it has \
            finished; remove `in_flight`";
        errors.at(literal, what, "write `claim = \"lease\", in_flight = \"poll\"`");
    }
    if routing.routes.is_empty() && args.name.value().is_none() {
        let what = "a lookup finds the operations of a handler that is routed by hand only \
            by their `name`; write a `name`";
        errors.at(literal, what, "write `name = \"create-export\", in_flight = \"poll\"`");
    }
}

/// Reports qualifiers other than `async`, and `async` if it is missing.
fn qualifiers(handler: &Handler, errors: &mut Errors) {
    const HELP: &str = "write `async fn create_payment(…)`";
    let signature = &handler.signature;
    let before = errors.count();
    for (qualifier, name) in [
        (signature.constness.to_token_stream(), "const"),
        (signature.safety.to_token_stream(), "unsafe"),
        (signature.abi.to_token_stream(), "extern"),
    ] {
        if !qualifier.is_empty() {
            let what = format!("a handler cannot be `{name}`; write `async fn`");
            errors.at(qualifier, what, HELP);
        }
    }
    if errors.count() == before && signature.asyncness.is_none() {
        let what = "a handler must be `async`; write `async` before `fn`";
        errors.at(signature.fn_token, what, HELP);
    }
}

/// Reports `Self` in the signature of a handler with a route attribute. actix-web makes a struct of
/// such a handler, which an `impl` block cannot contain.
fn in_impl(handler: &Handler, errors: &mut Errors) {
    if !route::is_routed(handler) || handler.signature.receiver().is_some() {
        return;
    }
    if let Some(token) = handler.self_type() {
        let what = "a handler with a route attribute cannot be in an `impl` block; \
            write a free function";
        let help = "move it out of the block and write the type for `Self`, or register it with \
            `web::post().to(Type::handler)` and write `method = \"POST\"` for the route attribute";
        errors.at(token, what, help);
    }
}

fn owned(parameter: &Parameter, errors: &mut Errors) {
    let Some(borrow) = borrows::borrow(parameter.ty.to_token_stream()) else { return };
    let (owned, help) = if transaction::mentioned(&parameter.ty) {
        ("`Tx` by value", transaction::EXAMPLE)
    } else {
        ("an owned value", "write `String` for `&str`, `web::Data<T>` for `&T`")
    };
    let what = format!(
        "the parameter borrows, but a guarded handler can outlive its request; take {owned}"
    );
    errors.at(borrow, what, help);
}
