//! `key = value`, separated by commas: the grammar of our attribute and of actix's route attributes.
//!
//! It is read by hand because a parser stops at its first mistake; here each entry can report its own.

use proc_macro2::{Ident, Punct, Spacing, TokenStream, TokenTree};
use syn::LitStr;

use crate::duration;
use crate::errors::{Errors, Reading, Reported};
use crate::nearest::nearest;

/// Every key, with a value that shows its use in messages.
pub(crate) const KEYS: [(&str, &str); 13] = [
    ("scope", "user"),
    ("ttl", "24h"),
    ("lease", "30s"),
    ("wait", "5s"),
    ("timeout", "30s"),
    ("key", "optional"),
    ("fingerprint", "json"),
    ("record", "success"),
    ("abandoned", "hold"),
    ("claim", "transaction"),
    ("method", "POST"),
    ("name", "create-payment"),
    ("crate", "my_crate::idempotent_actix"),
];

/// `key = value`. The value is still tokens, since what may stand there depends on the key.
pub(crate) struct Entry {
    pub(crate) key: Ident,
    value: TokenStream,
}

impl Entry {
    /// `None` if the tokens between two commas have another form.
    pub(crate) fn parse(tokens: &[TokenTree]) -> Option<Self> {
        Self::parse_with('=', tokens)
    }

    /// The same with another mark between key and value.
    fn parse_with(mark: char, tokens: &[TokenTree]) -> Option<Self> {
        let [TokenTree::Ident(key), TokenTree::Punct(found), value @ ..] = tokens else {
            return None;
        };
        let entry = found.as_char() == mark && found.spacing() == Spacing::Alone && !value.is_empty();
        let (key, value) = (key.clone(), value.iter().cloned().collect());
        entry.then_some(Self { key, value })
    }

    /// The value, where it is one string literal.
    pub(crate) fn string(&self) -> Option<LitStr> {
        syn::parse2(self.value.clone()).ok()
    }
}

/// The tokens between commas. A comma at the end adds nothing.
pub(crate) fn split(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut entries = vec![Vec::new()];
    for token in tokens {
        if matches!(&token, TokenTree::Punct(comma) if comma.as_char() == ',') {
            entries.push(Vec::new());
        } else if let Some(entry) = entries.last_mut() {
            entry.push(token);
        }
    }
    entries.retain(|entry| !entry.is_empty());
    entries
}

/// The attribute's entries. Each is taken by the one place that knows its key; whatever is left over in
/// the end is unknown, so the known keys and the keys that are read cannot drift apart.
pub(crate) struct Entries<'a> {
    entries: Vec<Entry>,
    /// Of an entry without a key, or without a value: its key may be any.
    keyless: Option<Reported>,
    pub(crate) errors: &'a mut Errors,
}

impl<'a> Entries<'a> {
    /// Splits the attribute's tokens, and refuses what is no entry and what is set twice.
    pub(crate) fn parse(tokens: TokenStream, errors: &'a mut Errors) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        let mut keyless = None;
        let tokens = tokens.into_iter().map(|token| comma_for_semicolon(token, errors)).collect();
        for tokens in split(tokens) {
            let Some(entry) = Entry::parse(&tokens).or_else(|| with_colon(&tokens, errors)) else {
                let known = matches!(tokens.first(), Some(TokenTree::Ident(key)) if key != "scope" && is_key(key));
                let reported = refuse(tokens, errors);
                keyless = keyless.or((!known).then_some(reported));
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
        Self { entries, keyless, errors }
    }

    /// Takes the value of `key` through `read`; `None` if the attribute does not set it.
    ///
    /// A value that is no string, an empty one, and one that `read` refuses are reported at the value.
    pub(crate) fn take<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&str, &LitStr) -> Reading<T>,
    ) -> Option<Result<T, Reported>> {
        let entry = self.remove(key)?;
        let Some(literal) = entry.string() else {
            let what = format!("`{key}` takes a string; write the value in double quotes");
            return Some(Err(self.errors.at(&entry.value, what, example(key))));
        };
        let value = if literal.value().trim().is_empty() {
            Err((format!("`{key}` is empty; write a value"), example(key)))
        } else {
            read(key, &literal)
        };
        Some(value.map_err(|(what, help)| self.errors.at(&literal, what, help)))
    }

    /// As [`take`](Self::take); a value that is absent or has been reported is the `default`.
    pub(crate) fn take_or<T>(&mut self, key: &str, read: impl FnOnce(&str, &LitStr) -> Reading<T>, default: T) -> T {
        self.take(key, read).and_then(Result::ok).unwrap_or(default)
    }

    /// Takes out and reports a key that has no place here.
    pub(crate) fn refuse(&mut self, key: &str, what: String, help: &str) {
        if let Some(Entry { key, .. }) = self.remove(key) {
            self.errors.at(key, what, help);
        }
    }

    fn remove(&mut self, key: &str) -> Option<Entry> {
        let position = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(position))
    }

    /// Reports the entries that nobody took, and tells whether `missing` was probably meant by one of them:
    /// then its absence is the same mistake and needs no second message.
    pub(crate) fn refuse_the_rest(&mut self, missing: &str) -> Option<Reported> {
        let keys = KEYS.map(|(key, _)| format!("`{key}`")).join(", ");
        let mut misspelt = self.keyless;
        for Entry { key, .. } in self.entries.drain(..) {
            let meant = nearest(&key.to_string(), KEYS.map(|(key, _)| key));
            let help = meant.map_or_else(usage, example);
            let what = format!("unknown key `{key}`; the keys are {keys}");
            let reported = self.errors.at(&key, what, help);
            misspelt = misspelt.or((meant == Some(missing)).then_some(reported));
        }
        misspelt
    }
}

/// Reports a `;`, and goes on as if a comma stood there.
fn comma_for_semicolon(token: TokenTree, errors: &mut Errors) -> TokenTree {
    if !matches!(&token, TokenTree::Punct(mark) if mark.as_char() == ';') {
        return token;
    }
    errors.at(&token, "entries are separated by commas; write `,` in place of `;`", usage());
    Punct::new(',', Spacing::Alone).into()
}

/// An entry with `:` in place of `=`, which is reported.
fn with_colon(tokens: &[TokenTree], errors: &mut Errors) -> Option<Entry> {
    let entry = Entry::parse_with(':', tokens)?;
    let what = format!("`{}` is set with `=`; write it in place of `:`", entry.key);
    errors.at(tokens.get(1), what, example(&entry.key.to_string()));
    Some(entry)
}

/// Reports what is no entry.
fn refuse(tokens: Vec<TokenTree>, errors: &mut Errors) -> Reported {
    let (what, help) = match tokens.as_slice() {
        [TokenTree::Ident(key)] if is_key(key) => {
            (format!("`{key}` has no value; write `{key} = \"…\"`"), example(&key.to_string()))
        }
        [value @ (TokenTree::Literal(_) | TokenTree::Ident(_))] => {
            let text = value.to_string();
            let text = text.trim_matches('"');
            let key = if duration::parse(text).is_ok() { "ttl" } else { "scope" };
            (
                format!("the value `{value}` has no key; write which key it is for"),
                format!("write `{key} = \"{text}\"`"),
            )
        }
        _ => ("this is not an entry; write `key = \"value\"`, separated by commas".to_owned(), usage()),
    };
    errors.at(tokens.into_iter().collect::<TokenStream>(), what, help)
}

fn is_key(key: &Ident) -> bool {
    KEYS.iter().any(|(known, _)| key == known)
}

/// Right code for one key.
pub(crate) fn example(key: &str) -> String {
    let known = KEYS.into_iter().find(|(known, _)| *known == key);
    let value = known.map_or("…", |(_, value)| value);
    format!("write `{key} = \"{value}\"`")
}

/// Right code for the whole attribute.
pub(crate) fn usage() -> String {
    "write `#[idempotent(scope = \"user\", ttl = \"24h\")]`".to_owned()
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{Entry, split};

    #[test]
    fn commas_inside_groups_do_not_split() {
        let entries = split(quote!(a = "1,2", b = f(x, y), , c = 3,));
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|entry| Entry::parse(entry).is_some()));
    }

    #[test]
    fn only_one_string_literal_is_a_string() {
        for (tokens, is_string) in [
            (quote!(ttl = "24h"), true),
            (quote!(ttl = 24), false),
            (quote!(ttl = -"24h"), false),
            (quote!(ttl = concat!("24", "h")), false),
            (quote!(ttl = "24h" "1h"), false),
        ] {
            let entry = split(tokens).iter().find_map(|entry| Entry::parse(entry));
            assert_eq!(entry.is_some_and(|entry| entry.string().is_some()), is_string);
        }
    }
}
