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

    /// Whether the body calls `point_of_no_return`, or `step` on a parameter of the type
    /// `Operation`, which implies it. A call in a function that the body calls is not seen.
    pub(crate) fn names_point_of_no_return(&self) -> bool {
        let operations = self.parameters.iter().filter(|parameter| parameter.is_operation());
        let operations: Vec<_> = operations.filter_map(Parameter::own_name).collect();
        !operations.is_empty() && names_point_of_no_return(self.body.clone(), &operations)
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

    /// Whether the type is `Operation`, or `Option` of it.
    fn is_operation(&self) -> bool {
        let words = self.ty.to_token_stream().into_iter();
        words
            .into_iter()
            .any(|token| matches!(token, TokenTree::Ident(word) if word == "Operation"))
    }
}

fn names_point_of_no_return(body: TokenStream, operations: &[Ident]) -> bool {
    let tokens: Vec<_> = body.into_iter().collect();
    let called = tokens.windows(3).any(|tokens| match tokens {
        [TokenTree::Ident(receiver), TokenTree::Punct(dot), TokenTree::Ident(method)] => {
            dot.as_char() == '.' && method == "step" && operations.contains(&receiver.unraw())
        }
        _ => false,
    });
    called
        || tokens.into_iter().any(|token| match token {
            TokenTree::Ident(method) => method == "point_of_no_return",
            TokenTree::Group(group) => names_point_of_no_return(group.stream(), operations),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
}

fn unguarded_name(handler: &Ident) -> Ident {
    format_ident!("{}_unguarded", handler.unraw(), span = handler.span())
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
