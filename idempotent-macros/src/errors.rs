//! Collects errors, so that every mistake in one attribute is reported in one compile.

use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<syn::Error>,
}

/// Proof that a mistake was reported. Only [`Errors`] can create it, so whenever a part of the
/// expansion is missing there is a message, and no handler is left unguarded silently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(());

/// A value, or the two lines of a message that the caller reports at the right token: first what
/// is wrong and how to correct it, then the help.
pub(crate) type ValueResult<T> = Result<T, (String, String)>;

impl Errors {
    /// Reports a mistake at `tokens`, or at the whole attribute if there are none.
    pub(crate) fn at(
        &mut self,
        tokens: impl ToTokens,
        what: impl Display,
        help: impl Display,
    ) -> Reported {
        self.found.push(syn::Error::new_spanned(tokens, format!("{what}\nhelp: {help}")));
        Reported(())
    }

    /// For a syntax error that rustc reports itself, because rustc parses the item before the macro
    /// runs.
    pub(crate) fn reported_by_rustc() -> Reported {
        Reported(())
    }

    /// The number of mistakes found so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// Each message with the source text at its span; `None` for the whole attribute.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<(Option<String>, String)> {
        let message = |error: &syn::Error| (error.span().source_text(), error.to_string());
        self.found.iter().map(message).collect()
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.found.into_iter().map(syn::Error::into_compile_error).collect()
    }
}
