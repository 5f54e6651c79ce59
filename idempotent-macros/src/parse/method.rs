//! HTTP methods whose requests can be guarded.

/// A method whose requests can be guarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Method {
    /// As HTTP spells it.
    pub(crate) name: &'static str,
    /// The guard's type parameter for it.
    pub(crate) marker: &'static str,
}

impl Method {
    pub(crate) const POST: Self = Self { name: "POST", marker: "Post" };
    const ALL: [Self; 4] = [
        Self::POST,
        Self { name: "PUT", marker: "Put" },
        Self { name: "PATCH", marker: "Patch" },
        Self { name: "DELETE", marker: "Delete" },
    ];

    /// The method that HTTP spells `name`, if its requests can be guarded.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name == name)
    }
}

/// What is wrong with a method that is not [`Method::named`].
pub(crate) fn cannot_be_guarded(name: &str) -> String {
    format!(
        "`{name}` requests cannot be guarded; \
            write `POST`, `PUT`, `PATCH` or `DELETE`, or remove `#[idempotent]`"
    )
}
