//! The attribute's keys as data.

use proc_macro2::TokenStream;
use syn::{ExprPath, LitStr, Path, parse_quote};

use super::duration;
use super::entry::{Entries, example};
use super::key_from::{KeySource, key_from};
use super::method::{Method, cannot_be_guarded};
use super::nearest::nearest;
use crate::errors::{Errors, Reported, ValueResult};

const DEFAULT_TTL: u64 = 24 * 60 * 60 * 1_000;
const DEFAULT_LEASE: u64 = 30 * 1_000;

const KEY: Values = &[("required", "Required"), ("optional", "Optional")];
const FINGERPRINT: Values = &[("body", "Raw"), ("json", "Json"), ("none", "Ignored")];
const RECORD: Values = &[("final", "Final"), ("success", "Success"), ("all", "All")];
const ABANDONED: Values =
    &[("retry", "Retry"), ("hold", "Hold"), ("retry_then_hold", "RetryThenHold")];
const IN_FLIGHT: Values = &[("conflict", "Conflict"), ("poll", "Poll")];
const CLAIM: Values = &[("lease", "Lease"), ("transaction", "Transaction")];

/// The values of a key, the default first: as the user writes each, and the runtime's variant.
type Values = &'static [(&'static str, Variant)];

/// The name of an enum variant in the runtime.
pub(crate) type Variant = &'static str;

/// The attribute's keys. An invalid value is reported and replaced with its default, so `Args` must
/// not be expanded unless [`Errors`] is empty.
pub(crate) struct Args {
    /// The path to the runtime crate: `::idempotent_actix` unless the user's crate renamed it.
    pub(crate) krate: Path,
    /// A parameter name or a path, depending on the handler's parameters.
    pub(crate) scope: Result<LitStr, Reported>,
    /// In milliseconds, like `lease`, `wait` and `timeout`. `None`: the application's default.
    pub(crate) ttl: Option<u64>,
    pub(crate) lease: Option<u64>,
    pub(crate) wait: Option<u64>,
    pub(crate) timeout: Option<u64>,
    pub(crate) key: Variant,
    /// With its literal, for messages. `None`: the header that the application configures.
    pub(crate) key_from: Option<(KeySource, LitStr)>,
    pub(crate) fingerprint: Fingerprint,
    /// `None`: the application's default. The same holds for `abandoned`.
    pub(crate) record: Option<Variant>,
    pub(crate) abandoned: Option<Variant>,
    /// With its literal, for messages.
    pub(crate) in_flight: Option<(Variant, LitStr)>,
    /// The literal of `claim = "transaction"`.
    pub(crate) transaction: Option<LitStr>,
    /// With its literal, for messages: a route attribute may contradict it.
    pub(crate) method: Option<Result<(Method, LitStr), Reported>>,
    /// Empty by default: the runtime then names the operation after its method and route.
    pub(crate) name: String,
}

/// How requests are compared.
pub(crate) enum Fingerprint {
    /// A fingerprint that the runtime crate supplies.
    Supplied(Variant),
    /// A path to the user's function.
    Custom(ExprPath),
}

impl Args {
    /// Parses the attribute's tokens.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut entries = Entries::parse(tokens, errors);
        let transaction = transaction(&mut entries);
        let (ttl, lease) = retention(&mut entries, transaction.is_some());
        Self {
            transaction,
            ttl,
            lease,
            wait: entries.optional("wait", period),
            timeout: entries.optional("timeout", positive),
            key: entries.optional("key", choice(KEY)).unwrap_or("Required"),
            key_from: entries
                .optional("key_from", |key, text| Ok((key_from(key, text)?, text.clone()))),
            fingerprint: entries
                .optional("fingerprint", fingerprint)
                .unwrap_or(Fingerprint::Supplied("Raw")),
            record: entries.optional("record", choice(RECORD)),
            abandoned: entries.optional("abandoned", choice(ABANDONED)),
            in_flight: entries.optional("in_flight", |key, text| {
                Ok((choice(IN_FLIGHT)(key, text)?, text.clone()))
            }),
            name: entries.optional("name", |_, text| Ok(text.value())).unwrap_or_default(),
            krate: entries
                .optional("crate", krate)
                .unwrap_or_else(|| parse_quote!(::idempotent_actix)),
            method: entries.take("method", method),
            scope: scope(entries),
        }
    }
}

impl Args {
    /// The literal of `in_flight = "poll"`.
    pub(crate) fn poll(&self) -> Option<&LitStr> {
        self.in_flight.as_ref().filter(|(rule, _)| *rule == "Poll").map(|(_, literal)| literal)
    }
}

/// Taken last: the remaining keys are unknown, and one of them may be a misspelled `scope`.
fn scope(mut entries: Entries<'_>) -> Result<LitStr, Reported> {
    let scope = entries.take("scope", |_, text| Ok(text.clone()));
    let misspelled = entries.refuse_unknown("scope");
    scope.or(misspelled.map(Err)).unwrap_or_else(|| {
        let what = "`scope` is missing; \
            name the parameter that identifies the caller, or a function that does";
        let help = "write `scope = \"user\"` for a parameter `user: User`, \
            or `scope = \"path::to::function\"`";
        Err(entries.errors.at(TokenStream::new(), what, help))
    })
}

/// Parses `claim`; reports the keys that contradict `"transaction"`.
fn transaction(entries: &mut Entries<'_>) -> Option<LitStr> {
    let parse = |key: &str, text: &LitStr| Ok((choice(CLAIM)(key, text)?, text.clone()));
    let (claim, literal) = entries.optional("claim", parse)?;
    if claim != "Transaction" {
        return None;
    }
    let help = "write `#[idempotent(scope = \"user\", claim = \"transaction\")]`";
    for key in ["lease", "abandoned"] {
        let Some(entry) = entries.remove(key) else { continue };
        let what = format!(
            "`{key}` has no effect with `claim = \"transaction\"`: a crash rolls the claim back; \
                remove it"
        );
        entries.errors.at(entry.key, what, help);
    }
    Some(literal)
}

/// Parses `ttl` and `lease`. A lease that outlived its record would let a second attempt start
/// while the first is in flight. If only one of the two is written, it is checked against the
/// built-in default of the other.
fn retention(entries: &mut Entries<'_>, transaction: bool) -> (Option<u64>, Option<u64>) {
    let spanned = |key: &str, text: &LitStr| Ok((positive(key, text)?, text.clone()));
    let ttl = entries.take("ttl", spanned).transpose();
    let lease = entries.take("lease", spanned).transpose();
    let (Ok(ttl), Ok(lease)) = (ttl, lease) else {
        return (None, None); // reported
    };
    let [written_ttl, written_lease] =
        [&ttl, &lease].map(|written| written.as_ref().map(|(milliseconds, _)| *milliseconds));
    let effective_ttl = written_ttl.unwrap_or(DEFAULT_TTL);
    let effective_lease = written_lease.unwrap_or(DEFAULT_LEASE);
    let shortest = effective_lease.saturating_mul(2);
    if !transaction && effective_ttl < shortest {
        let what = format!(
            "`ttl` ({}) is shorter than twice `lease` ({}); \
                write a longer `ttl` or a shorter `lease`",
            duration::format(effective_ttl),
            duration::format(effective_lease)
        );
        let help = format!("write `ttl = \"{}\"` or longer", duration::format(shortest));
        entries.errors.at(ttl.or(lease).map(|(_, text)| text), what, help);
    }
    (written_ttl, written_lease)
}

/// A duration that may be zero.
fn period(key: &str, text: &LitStr) -> ValueResult<u64> {
    duration::parse(&text.value()).map_err(|wrong| (format!("`{key}` {wrong}"), example(key)))
}

fn positive(key: &str, text: &LitStr) -> ValueResult<u64> {
    match period(key, text)? {
        0 => Err((format!("`{key}` is zero; write a longer duration"), example(key))),
        milliseconds => Ok(milliseconds),
    }
}

/// One of the listed words.
fn choice(values: Values) -> impl FnOnce(&str, &LitStr) -> ValueResult<Variant> {
    move |key, text| {
        let text = text.value();
        let found = values.iter().find(|(word, _)| *word == text);
        found.map(|(_, variant)| *variant).ok_or_else(|| {
            let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
            let (last, others) = words.split_last().unwrap_or((&"", &[]));
            let others = others.join("`, `");
            let what = format!("`{text}` is not a value of `{key}`; write `{others}` or `{last}`");
            let meant = nearest(&text, words).map(|word| format!("write `{key} = \"{word}\"`"));
            (what, meant.unwrap_or_else(|| example(key)))
        })
    }
}

/// A supplied fingerprint or a path. A supplied one in the wrong case is a mistake, not a path.
fn fingerprint(key: &str, text: &LitStr) -> ValueResult<Fingerprint> {
    let value = text.value();
    let mut words = FINGERPRINT.iter().map(|(word, _)| word);
    if words.any(|word| word.eq_ignore_ascii_case(&value)) {
        return choice(FINGERPRINT)(key, text).map(Fingerprint::Supplied);
    }
    text.parse().map(Fingerprint::Custom).map_err(|_| {
        let what = format!(
            "`{value}` is not a value of `{key}`; \
                write `body`, `json`, `none` or a path to a function"
        );
        (what, example(key))
    })
}

fn method(key: &str, text: &LitStr) -> ValueResult<(Method, LitStr)> {
    let name = text.value();
    if let Some(method) = Method::named(&name) {
        return Ok((method, text.clone()));
    }
    let upper = name.to_ascii_uppercase();
    if Method::named(&upper).is_none() {
        return Err((cannot_be_guarded(&name), example(key)));
    }
    let what = format!("methods are in upper case; write `{upper}` instead of `{name}`");
    Err((what, format!("write `{key} = \"{upper}\"`")))
}

fn krate(key: &str, text: &LitStr) -> ValueResult<Path> {
    text.parse_with(Path::parse_mod_style).map_err(|_| {
        let text = text.value();
        let what =
            format!("`{text}` is not a path; write the path to `idempotent_actix` in your crate");
        (what, example(key))
    })
}
