//! Resolves `scope` to a parameter or a function.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{ExprPath, LitStr};

use crate::errors::{Errors, Reported};
use crate::model::handler::{Handler, Parameter};
use crate::parse::nearest::nearest;

/// The functions of the runtime's module `scope`.
const SUPPLIED: [&str; 3] = ["global", "bearer_token", "peer_ip"];

/// Where the scope of a request comes from.
pub(crate) enum ScopeSource<'a> {
    Parameter(&'a Parameter),
    /// A path to a function that takes the request.
    Function(ExprPath),
}

impl<'a> ScopeSource<'a> {
    /// Resolves `scope`: a parameter by its bare name, or else a path.
    pub(crate) fn of(
        literal: &LitStr,
        handler: &'a Handler,
        errors: &mut Errors,
    ) -> Result<Self, Reported> {
        let text = literal.value();
        let name = text.trim();
        let name = name.strip_prefix("r#").unwrap_or(name);
        if name == "_" {
            let what = "`_` is not a parameter name; name the parameter and write its name here";
            let help = "write `scope = \"user\"` for a parameter `user: User`";
            return Err(errors.at(literal, what, help));
        }
        if let Some(parameter) = handler.parameter(name) {
            return Ok(Self::Parameter(parameter));
        }
        let mut parameters = handler.parameters.iter();
        if parameters.any(|parameter| binds(parameter.pattern.to_token_stream(), name)) {
            let what = format!(
                "`{name}` is bound inside a pattern, where `scope` cannot name it; \
                    name the whole parameter"
            );
            let help = format!("write `{name}: …` as the parameter and destructure it in the body");
            return Err(errors.at(literal, what, help));
        }
        if let Some(meant) = misspelled_parameter(handler, name) {
            let what = format!(
                "no parameter is named `{name}`, but one is named `{meant}`; write that name"
            );
            let help = format!(
                "write `scope = \"{meant}\"`, \
                    or `scope = \"self::{name}\"` for a function of that name"
            );
            return Err(errors.at(literal, what, help));
        }
        if SUPPLIED.contains(&name) {
            let what = format!(
                "no parameter is named `{name}`; write the path of the function with that name"
            );
            let help = format!(
                "write `scope = \"scope::{name}\"` and `use idempotent_actix::scope;`, \
                    or `scope = \"self::{name}\"` for a function of your own"
            );
            return Err(errors.at(literal, what, help));
        }
        literal.parse().map(Self::Function).map_err(|_| {
            let what =
                format!("`{text}` is neither a parameter name nor a path; write one of the two");
            errors.at(literal, what, "write `scope = \"user\"` or `scope = \"path::to::function\"`")
        })
    }
}

/// The parameter that `name` probably means; `None` for a path of several segments.
fn misspelled_parameter(handler: &Handler, name: &str) -> Option<String> {
    syn::parse_str::<Ident>(name).ok()?;
    let names = handler.parameters.iter().filter_map(Parameter::own_name);
    let names: Vec<_> = names.map(|name| name.to_string()).collect();
    nearest(name, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Whether the pattern binds `name`, rather than using it as a field, a type or a path.
fn binds(pattern: TokenStream, name: &str) -> bool {
    let mut tokens = pattern.into_iter().peekable();
    let continues =
        |next: &TokenTree| matches!(next, TokenTree::Group(_)) || next.to_string() == ":";
    while let Some(token) = tokens.next() {
        let found = match token {
            TokenTree::Group(group) => binds(group.stream(), name),
            TokenTree::Ident(word) => word.unraw() == name && !tokens.peek().is_some_and(continues),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        };
        if found {
            return true;
        }
    }
    false
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
