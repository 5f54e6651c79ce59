//! The annotated function: a model of it, and what it may not be.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, ExprPath, FnArg, LitStr, Pat, Path, Signature, Type, Visibility, token};

use crate::borrow::borrow;
use crate::errors::{Errors, Reported};
use crate::nearest::nearest;
use crate::transaction;

/// actix-web's handlers take sixteen parameters, and the guard is one of them.
const MOST_PARAMETERS: usize = 15;

/// A function as it was written.
pub(crate) struct Handler {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// Never parsed: the macro compiles faster, and takes syntax that syn does not know.
    pub(crate) body: TokenStream,
    pub(crate) parameters: Vec<Parameter>,
}

/// A parameter of the outer function.
pub(crate) struct Parameter {
    /// Without `cfg` here and at the call, a parameter that is configured out would still be passed on.
    pub(crate) cfg: Vec<Attribute>,
    /// The user's name for it, since other attributes may look for that, or one of our own.
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// As the user wrote it.
    pattern: Pat,
}

/// What `scope` turned out to be.
pub(crate) enum Scope<'a> {
    Parameter(&'a Parameter),
    Path(ExprPath),
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse()?;
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        });
        let parameters = typed.enumerate().map(|(index, parameter)| Parameter {
            cfg: cfg(&parameter.attrs),
            name: outer_name(index, &parameter.pat, &signature.ident),
            ty: (*parameter.ty).clone(),
            pattern: (*parameter.pat).clone(),
        });
        if !input.peek(token::Brace) {
            return Err(input.error("a trait's function has no body to guard"));
        }
        Ok(Self { parameters: parameters.collect(), attributes, visibility, signature, body: input.parse()? })
    }
}

impl Handler {
    /// Reads the annotated item.
    pub(crate) fn read(item: TokenStream, errors: &mut Errors) -> Result<Self, Reported> {
        syn::parse2(item.clone()).map_err(|error| {
            if lacks_a_type(item.clone()) {
                return Errors::reported_by_rustc();
            }
            if is_function_with_body(item.clone()) {
                let what = format!("this function has a syntax error: {error}");
                return errors.spanned(
                    error.span(),
                    what,
                    "write `async fn create_payment(user: User) -> HttpResponse { … }`",
                );
            }
            let what = "`#[idempotent]` guards a handler, and this is none; put it above an `async fn` with a body";
            errors.at(keyword(item), what, "write `async fn create_payment(user: User) -> HttpResponse { … }`")
        })
    }

    /// Takes out the attributes that guard the handler a second time, and reports them.
    pub(crate) fn refuse_second_guard(&mut self, errors: &mut Errors) {
        self.attributes.retain(|attribute| {
            let name = attribute.path().segments.last();
            let second = name.is_some_and(|name| name.ident == "idempotent");
            if second {
                let what = "`#[idempotent]` is applied twice; remove one of them";
                let help = "write all keys into one `#[idempotent(…)]`";
                errors.at(attribute.path(), what, help);
            }
            !second
        });
    }

    /// Reports everything that keeps the function from being a handler that can be guarded.
    pub(crate) fn refuse_unsupported(&self, errors: &mut Errors) -> Result<(), Reported> {
        let mut result = self.refuse_qualifiers(errors);
        let mut refuse = |at: &dyn ToTokens, what: &str, help| result = Err(errors.at(at, what, help));
        if let Some(receiver) = self.signature.receiver() {
            let what = "a handler cannot take `self`; take what it needs as an extractor";
            let help = "write `bank: web::Data<Bank>`, outside the `impl` block";
            refuse(receiver, what, help);
        }
        if let Some(variadic) = &self.signature.variadic {
            let what = "a handler cannot be variadic; name each parameter";
            let help = "write `user: User, body: web::Json<NewPayment>`";
            refuse(variadic, what, help);
        }
        for parameter in &self.parameters {
            if let Some(borrow) = borrow(parameter.ty.to_token_stream()) {
                let (owned, help) = if transaction::named(&parameter.ty) {
                    ("`Tx` by value", transaction::EXAMPLE)
                } else {
                    ("an owned value", "write `String` for `&str`, `web::Data<T>` for `&T`")
                };
                let what = format!("the parameter borrows, but a guarded handler outlives its request; take {owned}");
                refuse(&borrow, &what, help);
            }
        }
        if let Some(extra) = self.parameters.get(MOST_PARAMETERS) {
            let count = self.parameters.len();
            let what = format!(
                "the handler takes {count} parameters, and a guarded one can take {MOST_PARAMETERS}; combine some of them"
            );
            let help = "write a tuple, such as `(user, bank): (User, web::Data<Bank>)`";
            refuse(&extra.pattern, &what, help);
        }
        result
    }

    /// Reports what stands before the name instead of `async fn`.
    fn refuse_qualifiers(&self, errors: &mut Errors) -> Result<(), Reported> {
        const HELP: &str = "write `async fn create_payment(…)`";
        let signature = &self.signature;
        let mut result = Ok(());
        for (qualifier, name) in [
            (signature.constness.to_token_stream(), "const"),
            (signature.safety.to_token_stream(), "unsafe"),
            (signature.abi.to_token_stream(), "extern"),
        ] {
            if !qualifier.is_empty() {
                let what = format!("a handler cannot be `{name}`; write `async fn`");
                result = Err(errors.at(qualifier, what, HELP));
            }
        }
        if result.is_ok() && signature.asyncness.is_none() {
            let what = "a handler is `async`; write `async` before `fn`";
            result = Err(errors.at(signature.fn_token, what, HELP));
        }
        result
    }

    /// Finds out what `scope` names: a parameter by its bare name, or else a path.
    pub(crate) fn scope(&self, literal: &LitStr, errors: &mut Errors) -> Result<Scope<'_>, Reported> {
        let text = literal.value();
        let name = text.trim();
        let name = name.strip_prefix("r#").unwrap_or(name);
        if name == "_" {
            let what = "`_` is not a name; name the parameter whose scope it is";
            return Err(errors.at(literal, what, "write `scope = \"user\"` for a parameter `user: User`"));
        }
        let own = |pattern: &Pat| matches!(pattern, Pat::Ident(pattern) if pattern.ident.unraw() == name);
        if let Some(parameter) = self.parameters.iter().find(|parameter| own(&parameter.pattern)) {
            return Ok(Scope::Parameter(parameter));
        }
        let mut patterns = self.parameters.iter().map(|parameter| &parameter.pattern);
        if patterns.any(|pattern| binds(pattern.to_token_stream(), name)) {
            let what =
                format!("`{name}` is bound inside a pattern, so the guard cannot see it; name a whole parameter");
            let help = format!("write `{name}: …` in the signature and take it apart in the body");
            return Err(errors.at(literal, what, help));
        }
        if let Some(meant) = self.misspelt_parameter(name) {
            let what = format!("no parameter is called `{name}`, but one is called `{meant}`; write that name");
            let help =
                format!("write `scope = \"{meant}\"`, or `scope = \"self::{name}\"` for a function of that name");
            return Err(errors.at(literal, what, help));
        }
        literal.parse().map(Scope::Path).map_err(|_| {
            let what = format!("`{text}` is neither a parameter's name nor a path; write one of them");
            let help = "write `scope = \"user\"` or `scope = \"path::to::function\"`";
            errors.at(literal, what, help)
        })
    }
}

impl Handler {
    /// The parameter that `name` probably means, where it is no path of several segments.
    fn misspelt_parameter(&self, name: &str) -> Option<String> {
        syn::parse_str::<Ident>(name).ok()?;
        let names = self.parameters.iter().filter_map(|parameter| {
            let Pat::Ident(pattern) = &parameter.pattern else { return None };
            Some(pattern.ident.unraw().to_string())
        });
        let names: Vec<_> = names.collect();
        nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// Whether a binding in the pattern is called `name`: not a field, a type or a path.
fn binds(pattern: TokenStream, name: &str) -> bool {
    let mut tokens = pattern.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let leads = |next: &TokenTree| matches!(next, TokenTree::Group(_)) || next.to_string() == ":";
        let found = match token {
            TokenTree::Group(group) => binds(group.stream(), name),
            TokenTree::Ident(ident) => ident.unraw() == name && !tokens.peek().is_some_and(leads),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        };
        if found {
            return true;
        }
    }
    false
}

/// A simple pattern keeps its name on the outside. The handler's own name cannot be one, because there it
/// would hide the function that is called.
fn outer_name(index: usize, pattern: &Pat, handler: &Ident) -> Ident {
    if let Pat::Ident(pattern) = pattern
        && pattern.ident != *handler
    {
        return pattern.ident.clone();
    }
    format_ident!("__arg{index}", span = Span::mixed_site())
}

fn cfg(attributes: &[Attribute]) -> Vec<Attribute> {
    let is_cfg = |path: &Path| path.is_ident("cfg") || path.is_ident("cfg_attr");
    let attributes = attributes.iter();
    attributes.filter(|attribute| is_cfg(attribute.path())).cloned().collect()
}

/// The token that tells what an item is, behind attributes and visibility.
fn keyword(item: TokenStream) -> Option<TokenTree> {
    let behind = |input: ParseStream<'_>| {
        input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        let keyword = input.parse()?;
        input.parse::<TokenStream>()?;
        Ok(keyword)
    };
    behind.parse2(item).ok()
}

/// Whether `item` looks like a function, whatever its syntax errors.
pub(crate) fn is_function_with_body(item: TokenStream) -> bool {
    let tokens: Vec<_> = item.into_iter().collect();
    let function = tokens.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    function && tokens.last().is_some_and(body)
}

/// Whether `item` is a function with a parameter that has a colon and no type.
fn lacks_a_type(item: TokenStream) -> bool {
    let mut tokens = item.into_iter().skip_while(|token| !matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let parameters = tokens.find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    });
    let punctuation = |token: &TokenTree, wanted| matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted);
    let parameters: Vec<_> = parameters.into_iter().flatten().collect();
    parameters.iter().enumerate().any(|(index, token)| {
        let ends = parameters.get(index + 1).is_none_or(|next| punctuation(next, ','));
        punctuation(token, ':') && ends
    })
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::binds;

    #[test]
    fn only_bindings_are_found_in_a_pattern() {
        for (pattern, bound) in [
            (quote!(web::Path(user)), true),
            (quote!(web::Path((id, ref mut user))), true),
            (quote!(User { id: user, .. }), true),
            (quote!(User { user, .. }), true),
            (quote!(whole @ [user, ..]), true),
            (quote!(User { user: id }), false),
            (quote!(user::Path(id)), false),
            (quote!(user(id)), false),
            (quote!(_), false),
        ] {
            assert_eq!(binds(pattern.clone(), "user"), bound, "{pattern}");
        }
    }
}
