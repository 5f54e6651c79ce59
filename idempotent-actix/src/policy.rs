//! The policy of an operation: the attribute's values, or else the application's.

use std::{error::Error, fmt, time::Duration};

use idempotent_core::{OnAbandon, Policy};
use idempotent_http::recording::RecordRule;

use crate::declaration::{ClaimMode, Declaration};

/// The defaults that the builder has set; `None` leaves the built-in one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PolicyDefaults {
    pub(crate) ttl: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) record: Option<RecordRule>,
    /// The rule of the dialect.
    pub(crate) record_of_dialect: RecordRule,
    pub(crate) abandoned: Option<OnAbandon>,
}

impl PolicyDefaults {
    /// The policy that applies to an operation, valid or not.
    pub(crate) fn values(&self, declaration: &Declaration) -> Policy {
        let built_in = Policy::DEFAULT;
        let ttl = declaration.ttl.or(self.ttl).unwrap_or(built_in.ttl);
        let lease = declaration.lease.or(self.lease).unwrap_or(built_in.lease);
        let abandoned = declaration.abandoned.or(self.abandoned).unwrap_or(built_in.abandoned);
        // A crash rolls back a claim that is part of a transaction, so the lease does not matter
        // and no key is ever held.
        let (lease, abandoned) = match declaration.claim {
            ClaimMode::Lease => (lease, abandoned),
            ClaimMode::Transaction => (lease.min(ttl / 2), OnAbandon::Retry),
        };
        built_in
            .with_ttl(ttl)
            .with_lease(lease)
            .with_wait(declaration.wait.or(self.wait).unwrap_or(built_in.wait))
            .with_abandoned(abandoned)
    }

    /// The rule for the responses of an operation.
    pub(crate) fn record_rule(&self, declaration: &Declaration) -> RecordRule {
        declaration.record.or(self.record).unwrap_or(self.record_of_dialect)
    }

    /// The policy that applies to an operation.
    ///
    /// # Errors
    /// Fails if `ttl` and `lease` conflict. The macro verifies the values in the attribute; this
    /// verifies the values of the builder.
    pub(crate) fn resolve(&self, declaration: &Declaration) -> Result<Policy, PolicyConflict> {
        let policy = self.values(declaration);
        let fits = match declaration.claim {
            ClaimMode::Lease => !policy.lease.is_zero() && policy.ttl / 2 >= policy.lease,
            ClaimMode::Transaction => !policy.ttl.is_zero(),
        };
        if fits {
            return Ok(policy);
        }
        Err(PolicyConflict {
            handler: declaration.handler,
            ttl: (policy.ttl, SettingOrigin::of(declaration.ttl, self.ttl)),
            lease: (policy.lease, SettingOrigin::of(declaration.lease, self.lease)),
        })
    }
}

/// Where a value was set.
#[derive(Clone, Copy, Debug)]
enum SettingOrigin {
    Attribute,
    Builder,
    BuiltIn,
}

impl SettingOrigin {
    fn of(attribute: Option<Duration>, builder: Option<Duration>) -> Self {
        match (attribute, builder) {
            (Some(_), _) => Self::Attribute,
            (None, Some(_)) => Self::Builder,
            (None, None) => Self::BuiltIn,
        }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attribute => "set by the attribute",
            Self::Builder => "set by the builder",
            Self::BuiltIn => "the default",
        })
    }
}

/// The `ttl` and the `lease` of an operation conflict.
#[derive(Debug)]
pub(crate) struct PolicyConflict {
    handler: &'static str,
    ttl: (Duration, SettingOrigin),
    lease: (Duration, SettingOrigin),
}

impl fmt::Display for PolicyConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handler, ttl: (ttl, ttl_origin), lease: (lease, lease_origin) } = self;
        write!(
            f,
            "handler `{handler}` has `ttl` {ttl:?} ({ttl_origin}) and `lease` {lease:?} \
             ({lease_origin}); neither may be zero, and `ttl` must be at least twice `lease`"
        )
    }
}

impl Error for PolicyConflict {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::tests::LEASED;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_attribute_overrides_the_builder_and_the_builder_the_built_in_default() {
        let defaults =
            PolicyDefaults { ttl: Some(90 * SECOND), wait: Some(SECOND), ..Default::default() };
        let declaration = Declaration { ttl: Some(70 * SECOND), ..LEASED };
        let policy = defaults.resolve(&declaration).unwrap();
        assert_eq!((policy.ttl, policy.wait, policy.lease), (70 * SECOND, SECOND, 30 * SECOND));
        assert_eq!(
            defaults.resolve(&Declaration { ttl: None, ..LEASED }).unwrap().ttl,
            90 * SECOND
        );
    }

    #[test]
    fn a_conflict_names_both_settings_and_where_they_were_set() {
        let defaults = PolicyDefaults { lease: Some(40 * SECOND), ..Default::default() };
        let conflict = defaults.resolve(&LEASED).unwrap_err().to_string();
        assert!(conflict.contains("`ttl` 60s (set by the attribute)"), "{conflict}");
        assert!(conflict.contains("`lease` 40s (set by the builder)"), "{conflict}");
        for zero in [
            PolicyDefaults { lease: Some(Duration::ZERO), ..Default::default() },
            PolicyDefaults { ttl: Some(Duration::ZERO), ..Default::default() },
        ] {
            assert!(zero.resolve(&Declaration { ttl: None, ..LEASED }).is_err());
        }
    }

    #[test]
    fn a_claim_in_a_transaction_has_no_lease_to_fit_and_is_never_held() {
        let declaration =
            Declaration { claim: ClaimMode::Transaction, ttl: Some(SECOND), ..LEASED };
        let defaults = PolicyDefaults { abandoned: Some(OnAbandon::Hold), ..Default::default() };
        let policy = defaults.resolve(&declaration).unwrap();
        assert_eq!((policy.abandoned, policy.lease), (OnAbandon::Retry, SECOND / 2));
    }
}
