//! What `#[idempotent]` states about one handler.

use std::{collections::BTreeSet, time::Duration};

use idempotent_core::{Abandoned, BodyForm, RecordRule};

pub(crate) mod markers;

/// The attribute of one handler.
#[derive(Debug)]
pub struct OperationSpec {
    /// The package that the handler is part of.
    pub package: &'static str,
    /// The `name` key; empty where it was not written.
    pub name: &'static str,
    /// The name of the handler's function.
    pub handler: &'static str,
    /// The routes of the handler.
    pub routes: &'static [Route],
    /// Whether a request without a key is refused.
    pub key_required: bool,
    /// How the body contributes to the fingerprint.
    pub fingerprint: BodyForm,
    /// How the key is claimed.
    pub claim: ClaimMode,
    /// The `timeout` key; `None` leaves it to the application.
    pub timeout: Option<Duration>,
    /// The `ttl` key; `None` leaves it to the application.
    pub ttl: Option<Duration>,
    /// The `lease` key; `None` leaves it to the application.
    pub lease: Option<Duration>,
    /// The `wait` key; `None` leaves it to the application.
    pub wait: Option<Duration>,
    /// The `record` key; `None` leaves it to the application.
    pub record: Option<RecordRule>,
    /// The `abandoned` key; `None` leaves it to the application.
    pub abandoned: Option<Abandoned>,
    /// Whether the handler names its point of no return, before which its key is not held.
    pub point_of_no_return: bool,
}

/// One route of a handler.
#[derive(Debug)]
pub struct Route {
    /// The method, which is guarded.
    pub method: &'static str,
    /// The resource of the route attribute; `None` where the handler is routed by hand.
    pub resource: Option<Resource>,
}

/// The resource that a route attribute registers.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The pattern, without the scopes above it.
    pub path: &'static str,
    /// The name, for `HttpRequest::url_for`.
    pub name: &'static str,
}

/// The route of a method, and of a pattern and a name if there are any.
#[must_use]
pub const fn route(method: &'static str, resource: &[&'static str]) -> Route {
    match *resource {
        [path, name] => Route { method, resource: Some(Resource { path, name }) },
        _ => Route { method, resource: None },
    }
}

/// A duration in milliseconds; `None` where the attribute has none.
#[must_use]
pub const fn duration(milliseconds: &[u64]) -> Option<Duration> {
    match *milliseconds {
        [milliseconds] => Some(Duration::from_millis(milliseconds)),
        _ => None,
    }
}

/// How a key is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// `claim = "lease"`: the claim is committed before the handler runs.
    Lease,
    /// `claim = "transaction"`: claim, effects and recording are one transaction.
    Transaction,
}

/// An annotated handler, as the linker collects it.
#[derive(Debug)]
pub struct Registered(pub &'static OperationSpec);

inventory::collect!(Registered);

/// All annotated handlers of the program.
pub(crate) fn annotated() -> impl Iterator<Item = &'static OperationSpec> {
    inventory::iter::<Registered>.into_iter().map(|registered| registered.0)
}

/// The packages of the annotated handlers, in alphabetical order.
pub(crate) fn packages() -> Vec<&'static str> {
    let packages: BTreeSet<_> = annotated().map(|operation| operation.package).collect();
    packages.into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A handler whose attribute sets `ttl` only.
    pub(crate) const LEASED: OperationSpec = OperationSpec {
        package: "shop",
        name: "",
        handler: "pay",
        routes: &[route("POST", &["/payments", "pay"])],
        key_required: true,
        fingerprint: BodyForm::Raw,
        claim: ClaimMode::Lease,
        timeout: None,
        ttl: Some(Duration::from_secs(60)),
        lease: None,
        wait: None,
        record: None,
        abandoned: None,
        point_of_no_return: false,
    };
}
