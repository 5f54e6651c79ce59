//! Scopes: which principal a key belongs to.

use std::{borrow::Cow, fmt};

use sha2::{Digest as _, Sha256};

mod text;

pub use text::ScopeTextError;

/// The principal that a key belongs to: a user, a tenant, an API token.
///
/// Equal keys in different scopes belong to different operations, and nothing that happens in one
/// scope is visible in another. A scope has a *kind*, so that user 5 and account 5 are different
/// scopes. `Debug` shows the kind and the length of the principal, but not the principal itself.
///
/// ```
/// use idempotent_core::ScopeId;
///
/// assert_ne!(ScopeId::of("user", "5"), ScopeId::of("account", "5"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ScopeId {
    kind: Cow<'static, str>,
    principal: Vec<u8>,
}

impl ScopeId {
    /// Creates the scope of a principal without a kind.
    #[must_use]
    pub fn new(principal: impl Into<Vec<u8>>) -> Self {
        Self::of("", principal)
    }

    /// Creates the scope of a principal of this kind, such as `ScopeId::of("user", user.id)`.
    #[must_use]
    pub fn of(kind: &'static str, principal: impl Into<Vec<u8>>) -> Self {
        Self { kind: kind.into(), principal: principal.into() }
    }

    /// Creates the scope of keys that belong to no principal: all of them share it. Use it for
    /// messages and jobs, whose keys no client chooses.
    #[must_use]
    pub fn global() -> Self {
        Self::of("global", "*")
    }

    /// Returns whether this is the [global](Self::global) scope, which identifies no principal.
    #[must_use]
    pub fn is_global(&self) -> bool {
        self.parts() == [b"global", &b"*"[..]]
    }

    /// Nests this scope in another scope, such as a user in a tenant. The result has the kind of
    /// this scope. It is [empty](Self::is_empty) if either scope is empty.
    #[must_use]
    pub fn nested_in(self, outer: &Self) -> Self {
        if self.is_empty() || outer.is_empty() {
            return Self { kind: self.kind, principal: Vec::new() };
        }
        let mut principal = Vec::new();
        for part in outer.parts() {
            principal
                .extend_from_slice(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            principal.extend_from_slice(part);
        }
        principal.extend_from_slice(&self.principal);
        Self { kind: self.kind, principal }
    }

    /// Returns whether the principal has no bytes. Refuse a request with an empty scope: otherwise
    /// all unauthenticated clients would share one scope.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.principal.is_empty()
    }

    /// Returns a digest that distinguishes this principal from others without revealing it. Stores
    /// of limited size count the records of each principal by it.
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

/// A digest of a [`ScopeId`], from [`ScopeId::principal`]: the first 16 bytes of SHA-256 over its
/// kind and its principal, each with its length.
///
/// In a record the digest is keyed, if the application has set a secret; see
/// [`FingerprintKeys`](crate::FingerprintKeys). `Display` shows it whole, as 32 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal([u8; 16]);

impl Principal {
    /// Creates the digest from bytes that a store has kept.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(")?;
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeId({:?}, {} bytes)", self.kind, self.principal.len())
    }
}
