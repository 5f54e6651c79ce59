//! The values of the attribute's keys.

use syn::{ExprPath, LitStr, Path};

use super::duration;
use super::entry::AttributeKey;
use super::method::{Method, cannot_be_guarded};
use super::nearest::nearest;
use crate::errors::ValueResult;

const FINGERPRINT: Values = &[("body", "Raw"), ("json", "Json"), ("none", "Ignored")];

/// The values of a key: as the user writes each, and the runtime's variant.
type Values = &'static [(&'static str, Variant)];

/// The name of an enum variant in the runtime.
pub(crate) type Variant = &'static str;

/// How requests are compared.
pub(crate) enum Comparison {
    /// A fingerprint that the runtime crate supplies.
    Supplied(Variant),
    /// A path to the user's function.
    Custom(ExprPath),
}

/// A duration that may be zero, in milliseconds.
pub(super) fn period(key: &AttributeKey, text: &LitStr) -> ValueResult<u64> {
    duration::parse(&text.value())
        .map_err(|wrong| (format!("`{}` {wrong}", key.name), key.example()))
}

pub(super) fn positive(key: &AttributeKey, text: &LitStr) -> ValueResult<u64> {
    match period(key, text)? {
        0 => Err((format!("`{}` is zero; write a longer duration", key.name), key.example())),
        milliseconds => Ok(milliseconds),
    }
}

/// One of the listed words.
pub(super) fn choice(
    values: Values,
) -> impl FnOnce(&AttributeKey, &LitStr) -> ValueResult<Variant> {
    move |key, text| {
        let (text, name) = (text.value(), key.name);
        let found = values.iter().find(|(word, _)| *word == text);
        found.map(|(_, variant)| *variant).ok_or_else(|| {
            let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
            let (last, others) = words.split_last().unwrap_or((&"", &[]));
            let others = others.join("`, `");
            let what = format!("`{text}` is not a value of `{name}`; write `{others}` or `{last}`");
            let meant = nearest(&text, words).map(|word| format!("write `{name} = \"{word}\"`"));
            (what, meant.unwrap_or_else(|| key.example()))
        })
    }
}

/// A supplied fingerprint or a path. A supplied one in the wrong case is a mistake, not a path.
pub(super) fn fingerprint(key: &AttributeKey, text: &LitStr) -> ValueResult<Comparison> {
    let value = text.value();
    let mut words = FINGERPRINT.iter().map(|(word, _)| word);
    if words.any(|word| word.eq_ignore_ascii_case(&value)) {
        return choice(FINGERPRINT)(key, text).map(Comparison::Supplied);
    }
    text.parse().map(Comparison::Custom).map_err(|_| {
        let what = format!(
            "`{value}` is not a value of `{}`; \
                write `body`, `json`, `none` or a path to a function",
            key.name
        );
        (what, key.example())
    })
}

pub(super) fn method(key: &AttributeKey, text: &LitStr) -> ValueResult<Method> {
    let name = text.value();
    if let Some(method) = Method::named(&name) {
        return Ok(method);
    }
    let upper = name.to_ascii_uppercase();
    if Method::named(&upper).is_none() {
        return Err((cannot_be_guarded(&name), key.example()));
    }
    let what = format!("methods are in upper case; write `{upper}` instead of `{name}`");
    Err((what, format!("write `{} = \"{upper}\"`", key.name)))
}

pub(super) fn krate(key: &AttributeKey, text: &LitStr) -> ValueResult<Path> {
    text.parse_with(Path::parse_mod_style).map_err(|_| {
        let text = text.value();
        let what =
            format!("`{text}` is not a path; write the path to `idempotent_actix` in your crate");
        (what, key.example())
    })
}
