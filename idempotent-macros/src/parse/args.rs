//! What the keys mean together: defaults, and keys that contradict each other.

use proc_macro2::TokenStream;
use syn::{LitStr, Path, parse_quote};

use super::duration;
use super::entry::Setting;
use super::keys::Args;
use super::values::Variant;
use crate::errors::{Errors, Reported};

const DEFAULT_TTL: u64 = 24 * 60 * 60 * 1_000;
const DEFAULT_LEASE: u64 = 30 * 1_000;

impl Args {
    /// Parses the attribute's tokens.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let (mut args, misspelled_scope) = Self::read(tokens, errors);
        if let Setting::Unset = args.scope {
            let reported = misspelled_scope.unwrap_or_else(|| missing_scope(errors));
            args.scope = Setting::Invalid { key: None, reported };
        }
        args.check_transaction(errors);
        args.check_retention(errors);
        args.check_json_part(errors);
        args.check_content_type(errors);
        args
    }

    /// A parameter name or a path, depending on the handler's parameters.
    pub(crate) fn scope(&self, errors: &mut Errors) -> Result<&LitStr, Reported> {
        match &self.scope {
            Setting::Set(written) => Ok(&written.value),
            Setting::Invalid { reported, .. } => Err(*reported),
            Setting::Unset => Err(missing_scope(errors)),
        }
    }

    /// The path to the runtime crate: `::idempotent_actix` unless the user's crate renamed it.
    pub(crate) fn krate(&self) -> Path {
        let written = self.krate.value().cloned();
        written.unwrap_or_else(|| parse_quote!(::idempotent_actix))
    }

    /// The literal of `claim = "transaction"`.
    pub(crate) fn transaction(&self) -> Option<&TokenStream> {
        literal_of(&self.claim, "Transaction")
    }

    /// The literal of `in_flight = "poll"`.
    pub(crate) fn poll(&self) -> Option<&TokenStream> {
        literal_of(&self.in_flight, "Poll")
    }

    /// Reports the keys that contradict `claim = "transaction"`.
    fn check_transaction(&self, errors: &mut Errors) {
        if self.transaction().is_none() {
            return;
        }
        for key in self.lease.key().into_iter().chain(self.abandoned.key()) {
            let what = format!(
                "`{key}` has no effect with `claim = \"transaction\"`: a crash rolls the claim \
                    back; remove it"
            );
            let help = "write `#[idempotent(scope = \"user\", claim = \"transaction\")]`";
            errors.at(key, what, help);
        }
    }

    /// A lease that outlived its record would let a second attempt start while the first is in
    /// flight. If only one of the two is written, it is checked against the built-in default of the
    /// other.
    fn check_retention(&self, errors: &mut Errors) {
        let effective = |setting: &Setting<u64>, default| match setting {
            Setting::Unset => Some(default),
            Setting::Invalid { .. } => None,
            Setting::Set(written) => Some(written.value),
        };
        let (Some(ttl), Some(lease)) =
            (effective(&self.ttl, DEFAULT_TTL), effective(&self.lease, DEFAULT_LEASE))
        else {
            return;
        };
        let shortest = lease.saturating_mul(2);
        if self.transaction().is_none() && ttl < shortest {
            let what = format!(
                "`ttl` ({}) is shorter than twice `lease` ({}); \
                    write a longer `ttl` or a shorter `lease`",
                duration::format(ttl),
                duration::format(lease)
            );
            let help = format!("write `ttl = \"{}\"` or longer", duration::format(shortest));
            let at = self.ttl.written().or(self.lease.written()).map(|written| &written.literal);
            errors.at(at, what, help);
        }
    }
}

fn literal_of<'a>(setting: &'a Setting<Variant>, variant: &str) -> Option<&'a TokenStream> {
    setting.written().filter(|written| written.value == variant).map(|written| &written.literal)
}

fn missing_scope(errors: &mut Errors) -> Reported {
    let what = "`scope` is missing; \
        name the parameter that identifies the caller, or a function that does";
    let help = "write `scope = \"user\"` for a parameter `user: User`, \
        or `scope = \"path::to::function\"`";
    errors.at(TokenStream::new(), what, help)
}
