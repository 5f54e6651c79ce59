//! The annotated function: a model of it, and what it may not be.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, ExprPath, FnArg, LitStr, Pat, Safety, Signature, Type, Visibility};

use crate::errors::{Errors, Reported};

/// actix-web's handlers take sixteen parameters, and the guard is one of them.
const MOST_PARAMETERS: usize = 15;

/// A function as it was written.
pub(crate) struct Handler {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// Never parsed: the macro compiles faster, and takes syntax that syn does not know.
    pub(crate) body: Group,
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
            cfg: parameter
                .attrs
                .iter()
                .filter(|attribute| is_cfg(attribute))
                .cloned()
                .collect(),
            name: outer_name(index, &parameter.pat, &signature.ident),
            ty: (*parameter.ty).clone(),
            pattern: (*parameter.pat).clone(),
        });
        Ok(Self {
            parameters: parameters.collect(),
            attributes,
            visibility,
            signature,
            body: input.parse()?,
        })
    }
}

impl Handler {
    /// Reads the annotated item.
    pub(crate) fn read(item: TokenStream, errors: &mut Errors) -> Result<Self, Reported> {
        syn::parse2(item.clone()).map_err(|_| {
            let what = "`#[idempotent]` guards a handler, and this is none; put it above an `async fn` with a body";
            errors.at(keyword(item), what, "write `async fn create_payment(user: User) -> HttpResponse { … }`")
        })
    }

    /// Takes out the attributes that guard the handler a second time, and reports them.
    pub(crate) fn refuse_second_guard(&mut self, errors: &mut Errors) {
        self.attributes.retain(|attribute| {
            let second = attribute
                .path()
                .segments
                .last()
                .is_some_and(|name| name.ident == "idempotent");
            if second {
                let what = "`#[idempotent]` is applied twice; remove one of them";
                errors.at(
                    attribute.path(),
                    what,
                    "write all keys into one `#[idempotent(…)]`",
                );
            }
            !second
        });
    }

    /// Reports everything that keeps the function from being a handler that can be guarded.
    pub(crate) fn refuse_unsupported(&self, errors: &mut Errors) -> Result<(), Reported> {
        let mut result = Ok(());
        for (at, what, help) in self.unsupported() {
            result = Err(errors.at(at, what, help));
        }
        for borrow in self
            .parameters
            .iter()
            .filter_map(|parameter| borrow(parameter.ty.to_token_stream()))
        {
            let what = "the parameter borrows, but a guarded handler outlives its request; take an owned value";
            result = Err(errors.at(
                borrow,
                what,
                "write `String` for `&str`, `web::Data<T>` for `&T`",
            ));
        }
        if let Some(extra) = self.parameters.get(MOST_PARAMETERS) {
            let count = self.parameters.len();
            let what = format!(
                "the handler takes {count} parameters, and a guarded one can take {MOST_PARAMETERS}; combine some of them"
            );
            let help = "write a tuple, such as `(user, bank): (User, web::Data<Bank>)`";
            result = Err(errors.at(&extra.pattern, what, help));
        }
        result
    }

    /// Tokens of the signature that a handler cannot have: where, what is wrong, what to write.
    fn unsupported(&self) -> Vec<(TokenStream, &'static str, &'static str)> {
        let signature = &self.signature;
        let mut found = Vec::new();
        let mut refuse =
            |at: &dyn ToTokens, what, help| found.push((at.to_token_stream(), what, help));
        if signature.asyncness.is_none() {
            refuse(
                &signature.fn_token,
                "a handler is `async`; write `async` before `fn`",
                "write `async fn create_payment(…)`",
            );
        }
        if let Some(token) = &signature.constness {
            refuse(
                token,
                "a handler cannot be `const`; remove it",
                "write `async fn create_payment(…)`",
            );
        }
        if let Safety::Unsafe(token) = &signature.safety {
            refuse(
                token,
                "a handler cannot be `unsafe`; write an `unsafe` block inside it",
                "write `async fn create_payment(…)`",
            );
        }
        if let Some(token) = &signature.abi {
            refuse(
                token,
                "a handler cannot be `extern`; remove it",
                "write `async fn create_payment(…)`",
            );
        }
        if let Some(token) = signature.receiver() {
            refuse(
                token,
                "a handler cannot take `self`; take what it needs as an extractor",
                "write `async fn create_payment(bank: web::Data<Bank>)` outside the `impl` block",
            );
        }
        if let Some(token) = &signature.variadic {
            refuse(
                token,
                "a handler cannot be variadic; name each parameter",
                "write `async fn create_payment(user: User)`",
            );
        }
        found
    }

    /// Finds out what `scope` names: a parameter by its bare name, or else a path.
    pub(crate) fn scope(
        &self,
        literal: &LitStr,
        errors: &mut Errors,
    ) -> Result<Scope<'_>, Reported> {
        let name = literal.value();
        let name = name.trim();
        if let Some(parameter) = self
            .parameters
            .iter()
            .find(|parameter| parameter.is_called(name))
        {
            return Ok(Scope::Parameter(parameter));
        }
        if self
            .parameters
            .iter()
            .any(|parameter| parameter.binds(name))
        {
            let what = format!(
                "`{name}` is bound inside a pattern, so the guard cannot see it; name a whole parameter"
            );
            let help = format!("write `{name}: …` in the signature and take it apart in the body");
            return Err(errors.at(literal, what, help));
        }
        literal.parse().map(Scope::Path).map_err(|_| {
            let what =
                format!("`{name}` is neither a parameter's name nor a path; write one of them");
            errors.at(
                literal,
                what,
                "write `scope = \"user\"` or `scope = \"path::to::function\"`",
            )
        })
    }
}

impl Parameter {
    fn is_called(&self, name: &str) -> bool {
        matches!(&self.pattern, Pat::Ident(pattern) if pattern.ident.unraw() == name)
    }

    /// Whether a binding inside the pattern is called `name`: not a field's name, a type's or a path's.
    fn binds(&self, name: &str) -> bool {
        binds(self.pattern.to_token_stream(), name)
    }
}

fn binds(tokens: TokenStream, name: &str) -> bool {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let found = match token {
            TokenTree::Group(group) => binds(group.stream(), name),
            TokenTree::Ident(ident) => {
                let is_path = match tokens.peek() {
                    Some(TokenTree::Punct(next)) => next.as_char() == ':',
                    Some(TokenTree::Group(_)) => true,
                    Some(TokenTree::Ident(_) | TokenTree::Literal(_)) | None => false,
                };
                ident.unraw() == name && !is_path
            }
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
    let own = if let Pat::Ident(pattern) = pattern {
        Some(&pattern.ident)
    } else {
        None
    };
    own.filter(|own| *own != handler)
        .cloned()
        .unwrap_or_else(|| format_ident!("__arg{index}", span = Span::mixed_site()))
}

/// The first `&` or lifetime of a type that does not live forever. The signatures of function pointers and
/// closures borrow nothing from the request.
fn borrow(ty: TokenStream) -> Option<TokenStream> {
    let mut tokens = ty.into_iter().peekable();
    let (mut behind_fn, mut behind_arrow) = (false, false);
    while let Some(token) = tokens.next() {
        let found = match &token {
            TokenTree::Ident(word) if word == "for" => return None,
            TokenTree::Group(group) if !behind_fn => borrow(group.stream()),
            TokenTree::Punct(mark) if mark.as_char() == '&' && !behind_arrow => {
                let named =
                    matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '\'');
                (!named).then(|| token.to_token_stream())
            }
            TokenTree::Punct(mark) if mark.as_char() == '\'' => tokens
                .next_if(|name| !matches!(name, TokenTree::Ident(name) if name == "static"))
                .map(|name| quote!(#token #name)),
            TokenTree::Ident(_)
            | TokenTree::Group(_)
            | TokenTree::Punct(_)
            | TokenTree::Literal(_) => None,
        };
        if found.is_some() {
            return found;
        }
        behind_fn =
            matches!(&token, TokenTree::Ident(word) if CALLABLE.iter().any(|name| word == name));
        behind_arrow = matches!(&token, TokenTree::Punct(mark) if mark.as_char() == '>');
    }
    None
}

const CALLABLE: [&str; 7] = [
    "fn",
    "Fn",
    "FnMut",
    "FnOnce",
    "AsyncFn",
    "AsyncFnMut",
    "AsyncFnOnce",
];

fn is_cfg(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr")
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

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{binds, borrow};

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

    #[test]
    fn borrows_are_found_at_their_token() {
        for (ty, expected) in [
            (quote!(&str), Some("&")),
            (quote!(web::Data<&str>), Some("&")),
            (quote!((User, &mut Vec<u8>)), Some("&")),
            (quote!(Ref<'a, T>), Some("' a")),
            (quote!(Ref<'_>), Some("' _")),
            (quote!(&'a str), Some("' a")),
            (quote!(&'static str), None),
            (quote!(Cow<'static, str>), None),
            (quote!(web::Data<fn(&str) -> &str>), None),
            (quote!(web::Data<dyn Fn(&Order) -> bool + Send>), None),
            (quote!(web::Data<dyn for<'a> Check<'a>>), None),
            (quote!(web::Json<Vec<u8>>), None),
        ] {
            let found = borrow(ty.clone())
                .map(|found| found.to_string().replace("'a", "' a").replace("'_", "' _"));
            assert_eq!(found.as_deref(), expected, "{ty}");
        }
    }
}
