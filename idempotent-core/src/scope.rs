//! Whose key it is.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The owner of a key: a user, a tenant, an API token. Equal keys of different scopes are different operations, and nothing that
/// happens in one scope can be seen from another.
///
/// A scope has a *kind*, so that user 5 and account 5 are two scopes. It never shows its content in `Debug`.
///
/// ```
/// use idempotent_core::ScopeId;
///
/// assert_ne!(ScopeId::of("user", "5"), ScopeId::of("account", "5"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ScopeId {
    kind: &'static str,
    principal: Vec<u8>,
}

impl ScopeId {
    /// The scope of one principal, of no particular kind.
    #[must_use]
    pub fn new(principal: impl Into<Vec<u8>>) -> Self {
        Self::of("", principal)
    }

    /// The scope of one principal of a kind, such as `Scope::of("user", user.id)`.
    #[must_use]
    pub fn of(kind: &'static str, principal: impl Into<Vec<u8>>) -> Self {
        Self { kind, principal: principal.into() }
    }

    /// One scope inside another, such as a user inside a tenant. It keeps the kind of the inner one. Nobody inside a tenant, and
    /// anybody inside nothing, is nobody.
    #[must_use]
    pub fn within(self, outer: &Self) -> Self {
        if self.is_empty() || outer.is_empty() {
            return Self { kind: self.kind, principal: Vec::new() };
        }
        let mut principal = Vec::new();
        for part in outer.parts() {
            principal.extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            principal.extend_from_slice(part);
        }
        principal.extend_from_slice(&self.principal);
        Self { kind: self.kind, principal }
    }

    /// Whether it names nobody. A runtime treats that as no scope at all, never as a bucket that nobodies share.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.principal.is_empty()
    }

    /// What tells this principal from others without naming it.
    #[must_use]
    pub fn principal(&self) -> Principal {
        let mut hasher = Sha256::new_with_prefix("idem/principal/1");
        for part in self.parts() {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        let mut digest = [0; 16];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        Principal(digest)
    }

    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [self.kind.as_bytes(), &self.principal]
    }
}

/// A digest of a [`Scope`]: the first half of SHA-256 over its kind and its principal, each with its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Principal([u8; 16]);

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(")?;
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?}, {} bytes)", self.kind, self.principal.len())
    }
}
