//! The attribute's keys, read into data and checked.

use proc_macro2::TokenStream;
use syn::{ExprPath, LitStr, Path, parse_quote};

use crate::duration;
use crate::entry::{Entries, example};
use crate::errors::{Errors, Reading, Reported};
use crate::method::{Method, MethodKey};
use crate::nearest::nearest;

const DEFAULT_TTL: u64 = 24 * 60 * 60 * 1_000;
const DEFAULT_LEASE: u64 = 30 * 1_000;

const KEY: Values = &[("required", "Required"), ("optional", "Optional")];
const FINGERPRINT: Values = &[("body", "Raw"), ("json", "Json"), ("none", "Nothing")];
const RECORD: Values = &[("final", "Final"), ("success", "Success"), ("all", "All")];
const ABANDONED: Values = &[("retry", "Retry"), ("hold", "Hold")];
const CLAIM: Values = &[("lease", "Lease"), ("transaction", "Transaction")];

/// The values of a key, the default first: how the user writes each, and what the runtime calls it.
type Values = &'static [(&'static str, Variant)];

/// The runtime's name for an enumerated value.
pub(crate) type Variant = &'static str;

/// What stands in the attribute's parentheses. A value with a mistake has been reported and left at its
/// default, which is why an `Args` must not be expanded while [`Errors`] holds anything.
pub(crate) struct Args {
    /// Where the runtime is found: `::idempotent_actix`, unless the user's crate renamed it.
    pub(crate) krate: Path,
    /// As written: only the handler's parameters tell whether it is one of them or a path.
    pub(crate) scope: Result<LitStr, Reported>,
    /// Milliseconds, as are `lease` and `wait`.
    pub(crate) ttl: u64,
    pub(crate) lease: u64,
    pub(crate) wait: u64,
    /// Milliseconds; zero leaves it to the application.
    pub(crate) timeout: u64,
    pub(crate) key: Variant,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) record: Variant,
    pub(crate) abandoned: Variant,
    /// The literal of `claim = "transaction"`, which is at fault where the handler takes no `Tx`.
    pub(crate) transaction: Option<LitStr>,
    /// Kept with its literal, which is at fault where the route attribute says otherwise.
    pub(crate) method: MethodKey,
    /// Empty where the runtime shall name the operation by its method and route.
    pub(crate) name: String,
}

/// What "the same request" means.
pub(crate) enum Fingerprint {
    /// One that the runtime supplies.
    Supplied(Variant),
    /// The user's own function.
    Custom(ExprPath),
}

impl Args {
    /// Reads the attribute's tokens.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut entries = Entries::parse(tokens, errors);
        let transaction = transaction(&mut entries);
        let (ttl, lease) = retention(&mut entries, transaction.is_some());
        Self {
            transaction,
            ttl,
            lease,
            wait: entries.take_or("wait", period, 0),
            timeout: entries.take_or("timeout", positive, 0),
            key: entries.take_or("key", choice(KEY), "Required"),
            fingerprint: entries.take_or("fingerprint", fingerprint, Fingerprint::Supplied("Raw")),
            record: entries.take_or("record", choice(RECORD), "Final"),
            abandoned: entries.take_or("abandoned", choice(ABANDONED), "Retry"),
            name: entries.take_or("name", |_, text| Ok(text.value()), String::new()),
            krate: entries.take_or("crate", krate, parse_quote!(::idempotent_actix)),
            method: entries.take("method", method),
            scope: scope(entries),
        }
    }
}

/// Stands last, because a misspelt `scope` is among the entries that nobody took.
fn scope(mut entries: Entries<'_>) -> Result<LitStr, Reported> {
    let scope = entries.take("scope", |_, text| Ok(text.clone()));
    let misspelt = entries.refuse_the_rest("scope");
    scope.or(misspelt.map(Err)).unwrap_or_else(|| {
        let what = "`scope` is missing; name the parameter that tells whose key it is, or a function that does";
        let help = "write `scope = \"user\"` for a parameter `user: User`, or `scope = \"path::to::function\"`";
        Err(entries.errors.at(TokenStream::new(), what, help))
    })
}

/// `claim`, and the keys that mean nothing where it is `"transaction"`.
fn transaction(entries: &mut Entries<'_>) -> Option<LitStr> {
    let read = |key: &str, text: &LitStr| Ok((choice(CLAIM)(key, text)? == "Transaction").then(|| text.clone()));
    let transaction = entries.take_or("claim", read, None)?;
    for (key, nothing) in [("lease", "there is no `lease`"), ("abandoned", "nothing is ever `abandoned`")] {
        let what = format!("{nothing} with `claim = \"transaction\"`: a crash rolls the claim back; leave it out");
        entries.refuse(key, what, "write `#[idempotent(scope = \"user\", claim = \"transaction\")]`");
    }
    Some(transaction)
}

/// `ttl` and `lease`, which have to fit each other: a lease that outlives the record would let a key be
/// claimed anew while its first attempt still runs.
fn retention(entries: &mut Entries<'_>, transaction: bool) -> (u64, u64) {
    let spanned = |key: &str, text: &LitStr| Ok((positive(key, text)?, Some(text.clone())));
    let ttl = entries.take("ttl", spanned);
    let lease = entries.take("lease", spanned);
    let ttl = ttl.unwrap_or(Ok((DEFAULT_TTL, None)));
    let lease = lease.unwrap_or(Ok((DEFAULT_LEASE, None)));
    let (Ok((ttl, ttl_at)), Ok((lease, lease_at))) = (ttl, lease) else {
        return (DEFAULT_TTL, DEFAULT_LEASE); // one of them is reported already
    };
    if transaction {
        return (ttl, lease.min(ttl / 2)); // nobody asked for a lease, so it is the one to fit
    }
    let least = lease.saturating_mul(2);
    if ttl < least {
        let [ttl, lease, least] = [ttl, lease, least].map(duration::show);
        let what = format!(
            "`ttl` is {ttl} and `lease` is {lease}, but a record has to outlive two leases; write a longer `ttl` or a shorter `lease`"
        );
        let help = format!("write `ttl = \"{least}\"`, or more");
        entries.errors.at(ttl_at.or(lease_at), what, help);
    }
    (ttl, lease)
}

/// A duration that may be zero.
fn period(key: &str, text: &LitStr) -> Reading<u64> {
    duration::parse(&text.value()).map_err(|wrong| (format!("`{key}` {wrong}"), example(key)))
}

fn positive(key: &str, text: &LitStr) -> Reading<u64> {
    match period(key, text)? {
        0 => Err((format!("`{key}` is zero; write how long it lasts"), example(key))),
        milliseconds => Ok(milliseconds),
    }
}

/// One of a few words.
fn choice(values: Values) -> impl FnOnce(&str, &LitStr) -> Reading<Variant> {
    move |key, text| {
        let text = text.value();
        let found = values.iter().find(|(word, _)| *word == text);
        found.map(|(_, variant)| *variant).ok_or_else(|| {
            let words = values.iter().map(|(word, _)| *word);
            let listed = words.clone().collect::<Vec<_>>().join("` or `");
            let what = format!("`{text}` is no value of `{key}`; write `{listed}`");
            let meant = nearest(&text, words).map(|word| format!("write `{key} = \"{word}\"`"));
            (what, meant.unwrap_or_else(|| example(key)))
        })
    }
}

/// A supplied fingerprint or a path. A word that only its case tells from a supplied one was meant as that one.
fn fingerprint(key: &str, text: &LitStr) -> Reading<Fingerprint> {
    let value = text.value();
    let mut words = FINGERPRINT.iter().map(|(word, _)| word);
    if words.any(|word| word.eq_ignore_ascii_case(&value)) {
        return choice(FINGERPRINT)(key, text).map(Fingerprint::Supplied);
    }
    text.parse().map(Fingerprint::Custom).map_err(|_| {
        let what = format!("`{value}` is no value of `{key}`; write `body`, `json`, `none` or the path of a function");
        (what, example(key))
    })
}

fn krate(key: &str, text: &LitStr) -> Reading<Path> {
    text.parse_with(Path::parse_mod_style).map_err(|_| {
        let text = text.value();
        let what = format!("`{text}` is not a path; write where your crate finds `idempotent_actix`");
        (what, example(key))
    })
}

fn method(_: &str, text: &LitStr) -> Reading<(Method, LitStr)> {
    let name = text.value();
    let method = Method::named(&name).ok_or_else(|| {
        let meant = Method::named(&name.to_ascii_uppercase()).unwrap_or(Method::POST);
        (Method::refusal(&name), format!("write `method = \"{}\"`", meant.name))
    })?;
    Ok((method, text.clone()))
}
