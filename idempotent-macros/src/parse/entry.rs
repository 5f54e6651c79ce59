//! `key = value` entries, separated by commas: the grammar of `#[idempotent]` and of actix-web's
//! route attributes. The parser is hand-written, because a syn parser stops at its first error.

use proc_macro2::{Ident, Punct, Spacing, TokenStream, TokenTree};
use syn::LitStr;

use super::duration;
use super::literal::{Literal, in_brackets};
use super::nearest::nearest;
use crate::errors::{Errors, Reported, ValueResult};

/// A key of the attribute.
pub(crate) struct AttributeKey {
    pub(crate) name: &'static str,
    /// A value for messages.
    pub(crate) example: &'static str,
    /// What the documentation says of it.
    #[cfg(test)]
    pub(crate) row: Row,
}

/// The row of a key in the documentation.
#[cfg(test)]
pub(crate) struct Row {
    pub(crate) values: &'static str,
    pub(crate) default: &'static str,
    /// The lines of its meaning.
    pub(crate) meaning: &'static [&'static str],
}

impl AttributeKey {
    /// Help text: correct code for this key.
    pub(crate) fn example(&self) -> String {
        self.with_value(self.example)
    }

    /// A key without a value, for messages.
    fn placeholder(&self) -> String {
        self.with_value(if self.takes_list() { "[\"…\"]" } else { "…" })
    }

    /// The example of a list has its brackets.
    fn takes_list(&self) -> bool {
        self.example.starts_with('[')
    }

    fn with_value(&self, value: &str) -> String {
        let name = self.name;
        if self.takes_list() {
            format!("write `{name} = {value}`")
        } else {
            format!("write `{name} = \"{value}\"`")
        }
    }
}

/// One `key = value`. How the value is parsed depends on the key.
pub(crate) struct Entry {
    pub(crate) key: Ident,
    value: TokenStream,
}

impl Entry {
    /// `None` if the tokens are not `key = value`, or `key: value` for the separator `:`.
    pub(crate) fn parse(separator: char, tokens: &[TokenTree]) -> Option<Self> {
        let [TokenTree::Ident(key), TokenTree::Punct(mark), value @ ..] = tokens else {
            return None;
        };
        let separated = mark.as_char() == separator && mark.spacing() == Spacing::Alone;
        let value = TokenStream::from_iter(value.iter().cloned());
        (separated && !value.is_empty()).then(|| Self { key: key.clone(), value })
    }

    /// The value if it is one string literal.
    pub(crate) fn string(&self) -> Option<LitStr> {
        LitStr::of(&self.value)
    }
}

/// What the attribute says of one key.
pub(crate) enum Setting<T> {
    Unset,
    /// The value is invalid or missing, which was reported.
    Invalid {
        key: Option<Ident>,
        reported: Reported,
    },
    Set(Written<T>),
}

/// A value, with its tokens for messages.
pub(crate) struct Written<T> {
    pub(crate) key: Ident,
    pub(crate) value: T,
    pub(crate) literal: TokenStream,
}

impl<T> Setting<T> {
    pub(crate) fn written(&self) -> Option<&Written<T>> {
        match self {
            Self::Set(written) => Some(written),
            Self::Unset | Self::Invalid { .. } => None,
        }
    }

    /// The key, if it is written.
    pub(crate) fn key(&self) -> Option<&Ident> {
        match self {
            Self::Unset => None,
            Self::Invalid { key, .. } => key.as_ref(),
            Self::Set(written) => Some(&written.key),
        }
    }

    pub(crate) fn value(&self) -> Option<&T> {
        self.written().map(|written| &written.value)
    }
}

/// The tokens between commas; empty entries are skipped.
pub(crate) fn split_at_commas(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let entries = tokens.split(|token| is_mark(token, ','));
    entries.filter(|entry| !entry.is_empty()).map(<[_]>::to_vec).collect()
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// The attribute's entries, of which each key takes its own. Those that remain have unknown keys.
pub(crate) struct Entries<'a> {
    keys: &'static [AttributeKey],
    entries: Vec<Entry>,
    /// The report of an entry without a key, which may have been meant for any key.
    without_key: Option<Reported>,
    errors: &'a mut Errors,
}

impl<'a> Entries<'a> {
    /// Splits the attribute's tokens; reports malformed entries and duplicate keys.
    pub(crate) fn parse(
        tokens: TokenStream,
        keys: &'static [AttributeKey],
        errors: &'a mut Errors,
    ) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut without_key = None;
        let tokens = tokens.into_iter().map(|token| comma_for_semicolon(token, errors)).collect();
        for tokens in split_at_commas(tokens) {
            let entry = Entry::parse('=', &tokens).or_else(|| with_colon(&tokens, keys, errors));
            let Some(entry) = entry else {
                let other_key = tokens.first().is_some_and(|token| match token {
                    TokenTree::Ident(key) => key != "scope" && known(keys, key).is_some(),
                    TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => false,
                });
                let reported = report_malformed(tokens, keys, errors);
                without_key = without_key.or((!other_key).then_some(reported));
                continue;
            };
            let key = &entry.key;
            if entries.iter().any(|earlier| earlier.key == *key) {
                let what = format!("`{key}` is set twice; write it once");
                errors.at(key, what, example(keys, key));
            } else {
                entries.push(entry);
            }
        }
        Self { keys, entries, without_key, errors }
    }

    /// Takes and parses the value of the key with this name, or reports it.
    pub(crate) fn take<L: Literal, T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&AttributeKey, &L) -> ValueResult<T>,
    ) -> Setting<T> {
        let position = self.entries.iter().position(|entry| entry.key == name);
        let key = self.keys.iter().find(|key| key.name == name);
        let (Some(position), Some(key)) = (position, key) else { return Setting::Unset };
        let entry = self.entries.remove(position);
        let Some(literal) = L::of(&entry.value) else {
            let what = format!("`{name}` {}", L::EXPECTED);
            let help = corrected(key, &entry.value).unwrap_or_else(|| key.example());
            let reported = self.errors.at(&entry.value, what, help);
            return Setting::Invalid { key: Some(entry.key), reported };
        };
        let value = if literal.is_empty() {
            Err((format!("`{name}` is empty; write a value"), key.example()))
        } else {
            parse(key, &literal)
        };
        match value {
            Ok(value) => Setting::Set(Written { key: entry.key, value, literal: entry.value }),
            Err((what, help)) => {
                let reported = self.errors.at(&entry.value, what, help);
                Setting::Invalid { key: Some(entry.key), reported }
            }
        }
    }

    /// Reports the entries with unknown keys. If one of them probably is a misspelling of the key
    /// `missing`, returns its report, so that the key is not reported as missing as well.
    pub(crate) fn refuse_unknown(self, missing: &str) -> Option<Reported> {
        let names = || self.keys.iter().map(|key| key.name);
        let all: Vec<_> = names().map(|name| format!("`{name}`")).collect();
        let mut misspelled = self.without_key;
        for Entry { key, .. } in &self.entries {
            let meant = nearest(&key.to_string(), names());
            let meant = meant.and_then(|meant| self.keys.iter().find(|key| key.name == meant));
            let help = meant.map_or_else(usage, AttributeKey::example);
            let what = format!("unknown key `{key}`; the keys are {}", all.join(", "));
            let reported = self.errors.at(key, what, help);
            let is_missing = meant.is_some_and(|meant| meant.name == missing);
            misspelled = misspelled.or(is_missing.then_some(reported));
        }
        misspelled
    }
}

/// Reports a `;` and replaces it by a comma.
fn comma_for_semicolon(token: TokenTree, errors: &mut Errors) -> TokenTree {
    if !is_mark(&token, ';') {
        return token;
    }
    errors.at(&token, "keys are separated by commas; write `,` instead of `;`", usage());
    Punct::new(',', Spacing::Alone).into()
}

/// Reports and accepts `key: value`.
fn with_colon(tokens: &[TokenTree], keys: &[AttributeKey], errors: &mut Errors) -> Option<Entry> {
    let entry = Entry::parse(':', tokens)?;
    let what = format!("`{}` is followed by `:`; write `=` instead", entry.key);
    errors.at(tokens.get(1), what, example(keys, &entry.key));
    Some(entry)
}

fn report_malformed(
    tokens: Vec<TokenTree>,
    keys: &[AttributeKey],
    errors: &mut Errors,
) -> Reported {
    let (what, help) = match tokens.as_slice() {
        [TokenTree::Ident(key)] if known(keys, key).is_some() => {
            let placeholder = known(keys, key).map(AttributeKey::placeholder).unwrap_or_default();
            (format!("`{key}` has no value; {placeholder}"), example(keys, key))
        }
        [value @ (TokenTree::Literal(_) | TokenTree::Ident(_))] => {
            let text = value.to_string();
            let text = text.trim_matches('"');
            let key = if duration::parse(text).is_ok() { "ttl" } else { "scope" };
            (
                format!("the value `{value}` has no key; write `key = \"value\"`"),
                format!("write `{key} = \"{text}\"`"),
            )
        }
        _ => (
            "this is not of the form `key = \"value\"`; \
                write keys with string values, separated by commas"
                .to_owned(),
            usage(),
        ),
    };
    errors.at(tokens.into_iter().collect::<TokenStream>(), what, help)
}

/// Help text: the value in quotes, if it is a path; in brackets, if the key takes a list.
fn corrected(key: &AttributeKey, value: &TokenStream) -> Option<String> {
    if key.takes_list() {
        return in_brackets(value).map(|list| key.with_value(&list));
    }
    syn::parse2::<syn::Path>(value.clone()).ok()?;
    let path: String = value.clone().into_iter().map(|token| token.to_string()).collect();
    Some(key.with_value(&path))
}

fn known<'a>(keys: &'a [AttributeKey], name: &Ident) -> Option<&'a AttributeKey> {
    keys.iter().find(|key| name == key.name)
}

/// Help text: correct code for a key, which may be unknown.
fn example(keys: &[AttributeKey], name: &Ident) -> String {
    known(keys, name).map_or_else(|| format!("write `{name} = \"…\"`"), AttributeKey::example)
}

/// Help text: correct code for the whole attribute.
fn usage() -> String {
    "write `#[idempotent(scope = \"user\", ttl = \"24h\")]`".to_owned()
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{Entry, split_at_commas};

    #[test]
    fn commas_inside_groups_do_not_split() {
        let entries = split_at_commas(quote!(a = "1,2", b = f(x, y), , c = 3,));
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|entry| Entry::parse('=', entry).is_some()));
    }

    #[test]
    fn only_a_single_string_literal_is_a_string_value() {
        for (tokens, is_string) in [
            (quote!(ttl = "24h"), true),
            (quote!(ttl = 24), false),
            (quote!(ttl = -"24h"), false),
            (quote!(ttl = concat!("24", "h")), false),
            (quote!(ttl = "24h" "1h"), false),
        ] {
            let entry = split_at_commas(tokens).iter().find_map(|entry| Entry::parse('=', entry));
            assert_eq!(entry.is_some_and(|entry| entry.string().is_some()), is_string);
        }
    }
}
