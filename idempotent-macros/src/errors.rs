//! The collector: every mistake of one attribute is reported in one compile.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// What has been found wrong so far.
#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<syn::Error>,
}

/// Proof that a mistake has been reported. Only [`Errors`] creates one, so a part that is missing
/// from the expansion always has its message, and no handler is ever left unguarded in silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported(());

/// What a value says; or what is wrong and what to write instead, and, as help, right code. The place of a mistake is
/// the caller's to add.
pub(crate) type Reading<T> = Result<T, (String, String)>;

impl Errors {
    /// Reports a mistake at `tokens`. Where something is absent there are none, and the message stands at
    /// `#[idempotent(…)]` as a whole.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, what: impl Display, help: impl Display) -> Reported {
        let message = format!("{what}\nhelp: {help}");
        self.found.push(syn::Error::new_spanned(tokens, message));
        Reported(())
    }

    /// Reports a mistake at `span`.
    pub(crate) fn spanned(&mut self, span: Span, what: impl Display, help: impl Display) -> Reported {
        self.found.push(syn::Error::new(span, format!("{what}\nhelp: {help}")));
        Reported(())
    }

    /// Stands for a syntax error that rustc reports itself: it parses the item before any attribute macro sees it.
    pub(crate) fn reported_by_rustc() -> Reported {
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
        let errors = self.found.into_iter();
        errors.map(syn::Error::into_compile_error).collect()
    }
}
