//! HTTP methods, as far as their requests can be guarded.

use syn::LitStr;

use crate::errors::Reported;

/// A method whose requests can be guarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Method {
    /// As HTTP spells it.
    pub(crate) name: &'static str,
    /// The guard's type for it.
    pub(crate) marker: &'static str,
}

impl Method {
    pub(crate) const POST: Self = Self::new("POST", "Post");
    const ALL: [Self; 4] =
        [Self::POST, Self::new("PUT", "Put"), Self::new("PATCH", "Patch"), Self::new("DELETE", "Delete")];

    const fn new(name: &'static str, marker: &'static str) -> Self {
        Self { name, marker }
    }

    /// The method that HTTP spells `name`, if its requests can be guarded.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name == name)
    }

    /// What to say of any other method.
    pub(crate) fn refusal(name: &str) -> String {
        format!(
            "`{name}` requests cannot be guarded; write `POST`, `PUT`, `PATCH` or `DELETE`, or remove `#[idempotent]`"
        )
    }
}

/// What the `method` key says, with the literal that is at fault where the route attribute says otherwise.
pub(crate) type MethodKey = Option<Result<(Method, LitStr), Reported>>;
