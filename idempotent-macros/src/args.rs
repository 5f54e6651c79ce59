//! The attribute's keys, read into data and checked.

use proc_macro2::TokenStream;
use syn::{ExprPath, LitStr, Path, parse_quote};

use crate::duration;
use crate::entry::{Entries, example};
use crate::errors::{Errors, Mistake, Reported};
use crate::nearest::nearest;
use crate::route::Method;

const DEFAULT_TTL: u64 = 24 * 60 * 60 * 1_000;
const DEFAULT_LEASE: u64 = 30 * 1_000;

const KEY: Values = &[("required", "Required"), ("optional", "Optional")];
const FINGERPRINT: Values = &[("body", "Body"), ("json", "Json"), ("none", "Nothing")];
const RECORD: Values = &[("final", "Final"), ("success", "Success"), ("all", "All")];
const ABANDONED: Values = &[("retry", "Retry"), ("hold", "Hold")];

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
    pub(crate) key: Variant,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) record: Variant,
    pub(crate) abandoned: Variant,
    /// Kept with its literal, which is at fault where the route attribute says otherwise.
    pub(crate) method: Option<Result<(Method, LitStr), Reported>>,
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
        let scope = entries.take("scope", |text| Ok(text.clone()));
        let (ttl, lease) = retention(&mut entries);
        entries.take("claim", claim);
        Self {
            krate: or(
                entries.take("crate", krate),
                parse_quote!(::idempotent_actix),
            ),
            ttl,
            lease,
            wait: or(entries.take("wait", |text| period("wait", text)), 0),
            key: or(
                entries.take("key", |text| choice("key", KEY, text)),
                "Required",
            ),
            fingerprint: or(
                entries.take("fingerprint", fingerprint),
                Fingerprint::Supplied("Body"),
            ),
            record: or(
                entries.take("record", |text| choice("record", RECORD, text)),
                "Final",
            ),
            abandoned: or(
                entries.take("abandoned", |text| choice("abandoned", ABANDONED, text)),
                "Retry",
            ),
            method: entries.take("method", method),
            name: or(entries.take("name", |text| Ok(text.value())), String::new()),
            scope: require_scope(scope, entries),
        }
    }
}

fn or<T>(given: Option<Result<T, Reported>>, default: T) -> T {
    given.and_then(Result::ok).unwrap_or(default)
}

/// Stands last, because a misspelt `scope` is among the entries that nobody took.
fn require_scope(
    scope: Option<Result<LitStr, Reported>>,
    mut entries: Entries<'_>,
) -> Result<LitStr, Reported> {
    let misspelt = entries.refuse_the_rest("scope");
    scope.or(misspelt.map(Err)).unwrap_or_else(|| {
        let what = "`scope` is missing; name the parameter that tells whose key it is, or a function that does";
        let help = "write `scope = \"user\"` for a parameter `user: User`, or `scope = \"path::to::function\"`";
        Err(entries.errors.at_attribute(what, help))
    })
}

/// `ttl` and `lease`, which have to fit each other: a lease that outlives the record would let a key be
/// claimed anew while its first attempt still runs.
fn retention(entries: &mut Entries<'_>) -> (u64, u64) {
    let ttl = entries.take("ttl", |text| Ok((positive("ttl", text)?, text.clone())));
    let lease = entries.take("lease", |text| Ok((positive("lease", text)?, text.clone())));
    let (ttl, lease) = match (ttl.transpose(), lease.transpose()) {
        (Ok(ttl), Ok(lease)) => (ttl, lease),
        (Err(_), _) | (_, Err(_)) => return (DEFAULT_TTL, DEFAULT_LEASE), // one message is enough
    };
    let at = ttl
        .as_ref()
        .or(lease.as_ref())
        .map(|(_, literal)| literal.clone());
    let (ttl, default_ttl) = ttl.map_or((DEFAULT_TTL, " by default"), |(ttl, _)| (ttl, ""));
    let (lease, default_lease) =
        lease.map_or((DEFAULT_LEASE, " by default"), |(lease, _)| (lease, ""));
    if ttl < lease.saturating_mul(2) {
        let what = format!(
            "`ttl` is {}{default_ttl} and `lease` is {}{default_lease}, but a record has to outlive two leases; write a longer `ttl` or a shorter `lease`",
            duration::show(ttl),
            duration::show(lease)
        );
        let help = format!(
            "write `ttl = \"{}\"` or more, or `lease = \"{}\"` or less",
            duration::show(lease.saturating_mul(2)),
            duration::show(ttl / 2)
        );
        entries.errors.at(at, what, help);
    }
    (ttl, lease)
}

/// A duration that may be zero.
fn period(key: &str, text: &LitStr) -> Result<u64, Mistake> {
    duration::parse(&text.value()).map_err(|what| {
        let what = format!(
            "`{key}` {what}; write whole numbers with the units `d`, `h`, `m`, `s` or `ms`"
        );
        Mistake::new(what, example(key))
    })
}

fn positive(key: &str, text: &LitStr) -> Result<u64, Mistake> {
    match period(key, text)? {
        0 => Err(Mistake::new(
            format!("`{key}` is zero; write how long it lasts"),
            example(key),
        )),
        milliseconds => Ok(milliseconds),
    }
}

/// One of a few words.
fn choice(key: &str, values: Values, text: &LitStr) -> Result<Variant, Mistake> {
    let text = text.value();
    let found = values.iter().find(|(word, _)| *word == text);
    found.map(|(_, variant)| *variant).ok_or_else(|| {
        let words = values.iter().map(|(word, _)| *word);
        let listed: Vec<String> = words.clone().map(|word| format!("`{word}`")).collect();
        let what = format!(
            "`{text}` is no value of `{key}`; write {}",
            listed.join(" or ")
        );
        let meant = nearest(&text, words).map(|word| format!("write `{key} = \"{word}\"`"));
        Mistake::new(what, meant.unwrap_or_else(|| example(key)))
    })
}

/// A supplied fingerprint or a path. A word that only its case tells from a supplied one was meant as that one.
fn fingerprint(text: &LitStr) -> Result<Fingerprint, Mistake> {
    let value = text.value();
    if FINGERPRINT
        .iter()
        .any(|(word, _)| word.eq_ignore_ascii_case(&value))
    {
        return choice("fingerprint", FINGERPRINT, text).map(Fingerprint::Supplied);
    }
    text.parse().map(Fingerprint::Custom).map_err(|_| {
        let what = format!("`{value}` is no value of `fingerprint`; write `body`, `json`, `none` or the path of a function");
        Mistake::new(what, example("fingerprint"))
    })
}

fn krate(text: &LitStr) -> Result<Path, Mistake> {
    text.parse_with(Path::parse_mod_style).map_err(|_| {
        let what = format!(
            "`{}` is not a path; write where your crate finds `idempotent_actix`",
            text.value()
        );
        Mistake::new(what, example("crate"))
    })
}

fn method(text: &LitStr) -> Result<(Method, LitStr), Mistake> {
    let name = text.value();
    let method = Method::named(&name).ok_or_else(|| {
        let meant = Method::named(&name.to_ascii_uppercase()).unwrap_or(Method::Post);
        Mistake::new(
            Method::refusal(&name),
            format!("write `method = \"{}\"`", meant.name()),
        )
    })?;
    Ok((method, text.clone()))
}

fn claim(text: &LitStr) -> Result<(), Mistake> {
    if text.value() == "transaction" {
        let what = "`claim = \"transaction\"` needs a `Tx` parameter, which this version does not have; write `lease` or leave the key out";
        return Err(Mistake::new(what, example("claim")));
    }
    choice("claim", &[("lease", "Lease")], text).map(|_| ())
}
