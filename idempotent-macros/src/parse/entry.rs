//! `key = value` entries, separated by commas: the grammar of `#[idempotent]` and of actix-web's
//! route attributes. The parser is hand-written, because a syn parser stops at its first error.

use proc_macro2::{Ident, Punct, Spacing, TokenStream, TokenTree};
use syn::LitStr;

use super::duration;
use super::nearest::nearest;
use crate::errors::{Errors, Reported, ValueResult};

/// Every key, with the value that messages use as an example.
pub(crate) const KEYS: [(&str, &str); 15] = [
    ("scope", "user"),
    ("ttl", "24h"),
    ("lease", "30s"),
    ("wait", "5s"),
    ("timeout", "30s"),
    ("key", "optional"),
    ("key_from", "header:webhook-id"),
    ("fingerprint", "json"),
    ("record", "success"),
    ("abandoned", "hold"),
    ("claim", "transaction"),
    ("in_flight", "poll"),
    ("method", "POST"),
    ("name", "create-payment"),
    ("crate", "my_crate::idempotent_actix"),
];

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
        syn::parse2(self.value.clone()).ok()
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

/// The attribute's entries. The code for each key takes its entry; the entries that remain have
/// unknown keys, so the list of known keys cannot disagree with the code.
pub(crate) struct Entries<'a> {
    entries: Vec<Entry>,
    /// The report of an entry without a key, which may have been meant for any key.
    without_key: Option<Reported>,
    pub(crate) errors: &'a mut Errors,
}

impl<'a> Entries<'a> {
    /// Splits the attribute's tokens; reports malformed entries and duplicate keys.
    pub(crate) fn parse(tokens: TokenStream, errors: &'a mut Errors) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut without_key = None;
        let tokens = tokens.into_iter().map(|token| comma_for_semicolon(token, errors)).collect();
        for tokens in split_at_commas(tokens) {
            let entry = Entry::parse('=', &tokens).or_else(|| with_colon(&tokens, errors));
            let Some(entry) = entry else {
                let other_key = matches!(
                    tokens.first(), Some(TokenTree::Ident(key)) if key != "scope" && is_key(key)
                );
                let reported = report_malformed(tokens, errors);
                without_key = without_key.or((!other_key).then_some(reported));
                continue;
            };
            let key = &entry.key;
            if entries.iter().any(|earlier| earlier.key == *key) {
                let what = format!("`{key}` is set twice; write it once");
                errors.at(key, what, example(&key.to_string()));
            } else {
                entries.push(entry);
            }
        }
        Self { entries, without_key, errors }
    }

    /// Takes and parses the value of `key`, or reports it; `None` if the attribute does not set it.
    pub(crate) fn take<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str, &LitStr) -> ValueResult<T>,
    ) -> Option<Result<T, Reported>> {
        let entry = self.remove(key)?;
        let Some(literal) = entry.string() else {
            let what = format!("`{key}` takes a string; write the value in double quotes");
            let help = quoted(key, &entry.value).unwrap_or_else(|| example(key));
            return Some(Err(self.errors.at(&entry.value, what, help)));
        };
        let value = if literal.value().trim().is_empty() {
            Err((format!("`{key}` is empty; write a value"), example(key)))
        } else {
            parse(key, &literal)
        };
        Some(value.map_err(|(what, help)| self.errors.at(&literal, what, help)))
    }

    /// Like [`take`](Self::take); `None` also for a reported value.
    pub(crate) fn optional<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str, &LitStr) -> ValueResult<T>,
    ) -> Option<T> {
        self.take(key, parse)?.ok()
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let position = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(position))
    }

    /// Reports the entries with unknown keys. If one of them probably is a misspelling of the key
    /// `missing`, returns its report, so that the key is not reported as missing as well.
    pub(crate) fn refuse_unknown(&mut self, missing: &str) -> Option<Reported> {
        let keys = KEYS.map(|(key, _)| format!("`{key}`")).join(", ");
        let mut misspelled = self.without_key;
        for Entry { key, .. } in self.entries.drain(..) {
            let meant = nearest(&key.to_string(), KEYS.map(|(key, _)| key));
            let help = meant.map_or_else(usage, example);
            let what = format!("unknown key `{key}`; the keys are {keys}");
            let reported = self.errors.at(&key, what, help);
            misspelled = misspelled.or((meant == Some(missing)).then_some(reported));
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
fn with_colon(tokens: &[TokenTree], errors: &mut Errors) -> Option<Entry> {
    let entry = Entry::parse(':', tokens)?;
    let what = format!("`{}` is followed by `:`; write `=` instead", entry.key);
    errors.at(tokens.get(1), what, example(&entry.key.to_string()));
    Some(entry)
}

fn report_malformed(tokens: Vec<TokenTree>, errors: &mut Errors) -> Reported {
    let (what, help) = match tokens.as_slice() {
        [TokenTree::Ident(key)] if is_key(key) => {
            (format!("`{key}` has no value; write `{key} = \"…\"`"), example(&key.to_string()))
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

/// Help text: the value in quotes, if it is a path.
fn quoted(key: &str, value: &TokenStream) -> Option<String> {
    syn::parse2::<syn::Path>(value.clone()).ok()?;
    let path: String = value.clone().into_iter().map(|token| token.to_string()).collect();
    Some(format!("write `{key} = \"{path}\"`"))
}

fn is_key(key: &Ident) -> bool {
    KEYS.iter().any(|(known, _)| key == known)
}

/// Help text: correct code for one key.
pub(crate) fn example(key: &str) -> String {
    let known = KEYS.into_iter().find(|(known, _)| *known == key);
    let value = known.map_or("…", |(_, value)| value);
    format!("write `{key} = \"{value}\"`")
}

/// Help text: correct code for the whole attribute.
pub(crate) fn usage() -> String {
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
