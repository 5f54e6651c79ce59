//! The collector: every mistake of one attribute is reported in one compile.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// What has been found wrong so far.
#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<syn::Error>,
}

/// Proof that a mistake has been reported. Only [`Errors`] can make one, so a part that is missing
/// from the expansion always has its message, and no handler is ever left unguarded in silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(());

/// A mistake whose place is known to the caller.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    /// What is wrong; what to write.
    pub(crate) what: String,
    /// Right code.
    pub(crate) help: String,
}

impl Mistake {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            help: help.into(),
        }
    }
}

impl Errors {
    /// Reports `what` is wrong at `tokens`, and in a second line the code that would be right.
    pub(crate) fn at(
        &mut self,
        tokens: impl ToTokens,
        what: impl Display,
        help: impl Display,
    ) -> Reported {
        let message = format!("{what}\nhelp: {help}");
        self.found.push(syn::Error::new_spanned(tokens, message));
        Reported(())
    }

    /// Reports something that is absent: the message stands at `#[idempotent(…)]` as a whole.
    pub(crate) fn at_attribute(&mut self, what: impl Display, help: impl Display) -> Reported {
        let message = format!("{what}\nhelp: {help}");
        self.found.push(syn::Error::new(Span::call_site(), message));
        Reported(())
    }

    /// Whether nothing has been reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Each mistake with the text that its span covers; a mistake of the whole attribute covers none.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> Vec<(Option<String>, String)> {
        let shown = |error: &syn::Error| (error.span().source_text(), error.to_string());
        self.found.iter().map(shown).collect()
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.found
            .iter()
            .map(syn::Error::to_compile_error)
            .collect()
    }
}
