//! Borrowed parameters: a guarded handler can outlive its request.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};

/// The first `&` or lifetime other than `'static` in a type. The signatures of function pointers
/// and closures do not count: they borrow nothing from the request.
pub(crate) fn borrow(ty: TokenStream) -> Option<TokenStream> {
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

/// The names that precede the signature of a function pointer or closure.
const CALLABLE: [&str; 7] = ["fn", "Fn", "FnMut", "FnOnce", "AsyncFn", "AsyncFnMut", "AsyncFnOnce"];

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::borrow;

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
