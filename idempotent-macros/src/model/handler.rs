//! The annotated function.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, FnArg, Pat, Path, Signature, Type, Visibility, token};

/// A function as the user wrote it.
pub(crate) struct Handler {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// Never parsed: this saves compile time, and accepts syntax that syn does not know.
    pub(crate) body: TokenStream,
    pub(crate) parameters: Vec<Parameter>,
}

/// A parameter of the handler.
pub(crate) struct Parameter {
    /// Repeated at the call: passing a parameter that is configured out would not compile.
    pub(crate) cfg: Vec<Attribute>,
    /// The user's name if the pattern is a plain name, because other attributes may refer to it.
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// As the user wrote it.
    pub(crate) pattern: Pat,
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse()?;
        let parameters = signature.inputs.iter().enumerate().filter_map(|(index, input)| {
            let FnArg::Typed(parameter) = input else { return None };
            Some(Parameter {
                cfg: cfg(&parameter.attrs),
                name: parameter_name(index, &parameter.pat, &signature.ident),
                ty: (*parameter.ty).clone(),
                pattern: (*parameter.pat).clone(),
            })
        });
        if !input.peek(token::Brace) {
            return Err(input.error("a function without a body cannot be guarded"));
        }
        let parameters = parameters.collect();
        Ok(Self { attributes, visibility, parameters, signature, body: input.parse()? })
    }
}

impl Handler {
    /// The name of the function that calls the handler without its guard.
    pub(crate) fn unguarded_name(&self) -> Ident {
        unguarded_name(&self.signature.ident)
    }

    /// `Self` in the signature, which only an associated function can have.
    pub(crate) fn self_type(&self) -> Option<Ident> {
        let types =
            [self.signature.inputs.to_token_stream(), self.signature.output.to_token_stream()];
        types.into_iter().find_map(self_type)
    }

    /// Whether a static can name the types of all parameters: none is generic, and none is that of
    /// an `impl` block.
    pub(crate) fn has_static_types(&self) -> bool {
        let types = self.parameters.iter().map(|parameter| parameter.ty.to_token_stream());
        self.signature.generics.params.is_empty() && types.into_iter().find_map(self_type).is_none()
    }

    /// The parameter whose whole pattern is `name`.
    pub(crate) fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.own_name().is_some_and(|own| own == name))
    }
}

impl Parameter {
    /// The user's name for the parameter, if its pattern is a plain name.
    pub(crate) fn own_name(&self) -> Option<Ident> {
        let Pat::Ident(pattern) = &self.pattern else { return None };
        Some(pattern.ident.unraw())
    }
}

fn self_type(tokens: TokenStream) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => self_type(group.stream()),
        TokenTree::Ident(word) => (word == "Self").then_some(word),
        TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}

/// The span is that of the macro, at the handler's name: lints such as `dead_code`, which the crate
/// may forbid, skip what a macro names.
fn unguarded_name(handler: &Ident) -> Ident {
    let span = Span::call_site().located_at(handler.span());
    format_ident!("{}_unguarded", handler.unraw(), span = span)
}

/// The user's name for the parameter, unless it would shadow a function that the expansion calls.
fn parameter_name(index: usize, pattern: &Pat, handler: &Ident) -> Ident {
    if let Pat::Ident(pattern) = pattern
        && pattern.ident != *handler
        && pattern.ident != unguarded_name(handler)
    {
        return pattern.ident.clone();
    }
    format_ident!("__arg{index}", span = Span::mixed_site())
}

fn cfg(attributes: &[Attribute]) -> Vec<Attribute> {
    let is_cfg = |path: &Path| path.is_ident("cfg") || path.is_ident("cfg_attr");
    attributes.iter().filter(|attribute| is_cfg(attribute.path())).cloned().collect()
}

/// An item that cannot be parsed as a [`Handler`].
pub(crate) struct Unparsed {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    /// Starts with the keyword of the item, such as `struct`.
    pub(crate) rest: Vec<TokenTree>,
}

impl Parse for Unparsed {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            rest: input.parse::<TokenStream>()?.into_iter().collect(),
        })
    }
}

impl Unparsed {
    /// The function's name, if the item looks like a function with a body.
    pub(crate) fn function_name(&self) -> Option<&TokenTree> {
        let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "fn");
        let name = self.rest.get(self.rest.iter().position(is_fn)? + 1);
        let Some(TokenTree::Group(body)) = self.rest.last() else { return None };
        name.filter(|_| body.delimiter() == Delimiter::Brace)
    }
}
