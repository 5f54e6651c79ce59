//! What the value of a key is made of: a string, or a list of strings.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{LitStr, Token};

/// A value that consists of literals.
pub(crate) trait Literal: Sized {
    /// What is wrong with other tokens; it continues a sentence whose subject is the key.
    const EXPECTED: &'static str;

    /// `None` if the tokens are something else.
    fn of(value: &TokenStream) -> Option<Self>;

    fn is_empty(&self) -> bool;
}

impl Literal for LitStr {
    const EXPECTED: &'static str = "takes a string; write the value in double quotes";

    fn of(value: &TokenStream) -> Option<Self> {
        syn::parse2(value.clone()).ok()
    }

    fn is_empty(&self) -> bool {
        self.value().trim().is_empty()
    }
}

impl Literal for Vec<LitStr> {
    const EXPECTED: &'static str = "takes a list of strings; write them in brackets";

    fn of(value: &TokenStream) -> Option<Self> {
        let mut tokens = value.clone().into_iter();
        let (Some(TokenTree::Group(list)), None) = (tokens.next(), tokens.next()) else {
            return None;
        };
        match list.delimiter() {
            Delimiter::Bracket => {
                let values = Punctuated::<LitStr, Token![,]>::parse_terminated;
                Some(values.parse2(list.stream()).ok()?.into_iter().collect())
            }
            // The list is a variable of a `macro_rules!`.
            Delimiter::None => Self::of(&list.stream()),
            Delimiter::Parenthesis | Delimiter::Brace => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}

/// `"value"` in brackets, for help.
pub(super) fn in_brackets(value: &TokenStream) -> Option<String> {
    let literal = LitStr::of(value)?;
    Some(format!("[{}]", literal.to_token_stream()))
}
