//! What `#[idempotent]` states about one handler.

use std::{
    any::TypeId,
    collections::{BTreeSet, HashMap},
    fmt,
    marker::PhantomData,
    sync::LazyLock,
    time::Duration,
};

use actix_web::{Error, HttpRequest};
use futures_util::future::LocalBoxFuture;
use idempotent_core::ScopeId;
use idempotent_http::digest::BodyForm;

use self::rules::{ContentTypeForm, InFlightRule, OnAbandon, QueryForm, RecordRule};
use crate::key_source::{DeclaredSource, KeySource};

pub use idempotent_core::job::ClaimMode;

pub(crate) mod markers;

/// Runs an extractor for a request other than its handler's; `None` if it
/// [`IgnoresCaller`](crate::scope::IgnoresCaller).
pub type Check = Option<LocalBoxFuture<'static, Result<(), Error>>>;

/// The scope of a request, once it is known.
pub(crate) type ScopeFuture = LocalBoxFuture<'static, Result<ScopeId, Option<Error>>>;

/// Finds the scope of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestScope {
    /// With a scope function.
    Function(fn(&HttpRequest) -> Result<ScopeId, Option<Error>>),
    /// With the extractor of a parameter.
    Parameter(fn(&HttpRequest) -> ScopeFuture),
}

/// The attribute of one handler.
#[derive(Debug)]
pub struct Declaration {
    /// The package that the handler is part of.
    pub package: &'static str,
    /// The path of the module that the handler is in.
    pub module: &'static str,
    /// The `name` key; empty where it was not written.
    pub name: &'static str,
    /// The name of the handler's function.
    pub handler: &'static str,
    /// The routes of the handler.
    pub routes: &'static [Route],
    /// Whether a request without a key is refused.
    pub key_required: bool,
    /// The `key_from` key; `None`: the key is in the header that the application configures.
    pub key_from: Option<DeclaredSource>,
    /// How the body contributes to the fingerprint.
    pub fingerprint: BodyForm,
    /// The `query` key; `None`: as sent.
    pub query: Option<QueryForm>,
    /// The `content_type` key; `None`: as sent.
    pub content_type: Option<ContentTypeForm>,
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
    pub abandoned: Option<OnAbandon>,
    /// Finds the scope of another request; `None` if lookups cannot.
    pub scope: Option<RequestScope>,
    /// Run the other extractors of the handler for another request, in their order.
    pub extractors: &'static [fn(&HttpRequest) -> Check],
    /// The `in_flight` key; `None` is a conflict.
    pub in_flight: Option<InFlightRule>,
    /// Finds the database of the handler's `Tx`; `None` if the handler takes none.
    pub transaction: Option<fn() -> Option<TxDatabase>>,
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

/// The package of a handler: Cargo's name for it, or, without Cargo, the name of the crate.
#[must_use]
pub const fn package(cargo: Option<&'static str>, module: &'static str) -> &'static str {
    if let Some(name) = cargo {
        return name;
    }
    let bytes = module.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        // The index is below the length.
        #[expect(clippy::indexing_slicing, reason = "`get` is not const")]
        if bytes[end] == b':' {
            break;
        }
        end += 1;
    }
    module.split_at(end).0
}

/// A duration that the attribute sets.
#[must_use]
pub const fn milliseconds(milliseconds: u64) -> Option<Duration> {
    Some(Duration::from_millis(milliseconds))
}

/// The specification of a handler whose attribute sets nothing else. It has no routes yet.
#[must_use]
pub const fn declaration(
    package: &'static str,
    module: &'static str,
    name: &'static str,
    handler: &'static str,
    key_required: bool,
    fingerprint: BodyForm,
    claim: ClaimMode,
) -> Declaration {
    Declaration {
        package,
        module,
        name,
        handler,
        routes: &[],
        key_required,
        key_from: None,
        fingerprint,
        query: None,
        content_type: None,
        claim,
        timeout: None,
        ttl: None,
        lease: None,
        wait: None,
        record: None,
        abandoned: None,
        scope: None,
        extractors: &[],
        in_flight: None,
        transaction: None,
    }
}

/// The database of a `Tx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxDatabase {
    /// The `sqlx::Database`.
    pub(crate) id: TypeId,
    /// Its name.
    pub(crate) name: &'static str,
}

/// The type of a parameter, which may be a `Tx`, whatever its name is.
pub struct ExtractsTx<T: ?Sized>(PhantomData<fn() -> T>);

impl<T: ?Sized> fmt::Debug for ExtractsTx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractsTx")
    }
}

impl<T: ?Sized> ExtractsTx<T> {
    /// The type `T`.
    pub const TYPE: Self = Self(PhantomData);
}

/// Finds the database of a type that is not the `Tx` of this crate: none. The method of the `Tx` of
/// this crate is inherent, so it has precedence.
pub trait ExtractsNoTx {
    /// Returns the database.
    fn database(&self) -> Option<TxDatabase> {
        None
    }
}

impl<T: ?Sized> ExtractsNoTx for ExtractsTx<T> {}

/// The first database of a handler's parameters.
#[must_use]
pub fn first_database(databases: &[Option<TxDatabase>]) -> Option<TxDatabase> {
    databases.iter().copied().flatten().next()
}

/// The types of the rules that keys of the attribute set.
pub mod rules {
    pub use idempotent_core::OnAbandon;
    pub use idempotent_http::{
        digest::{ContentTypeForm, QueryForm},
        recording::RecordRule,
    };

    /// What a duplicate gets while the first request is in progress.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum InFlightRule {
        /// `in_flight = "conflict"`: 409.
        Conflict,
        /// `in_flight = "poll"`: 202, with the location of the lookup.
        Poll,
    }
}

/// An annotated handler, as the linker collects it.
#[derive(Debug)]
pub struct Declared(pub &'static Declaration);

inventory::collect!(Declared);

/// All annotated handlers of the program.
pub(crate) fn annotated() -> impl Iterator<Item = &'static Declaration> {
    inventory::iter::<Declared>.into_iter().map(|registered| registered.0)
}

/// The sources of all annotated handlers that have `key_from`. `None`: two functions have the same
/// id, because two handlers of one macro call have the same name.
static SOURCES: LazyLock<HashMap<u128, Option<KeySource>>> = LazyLock::new(|| {
    let mut sources = HashMap::new();
    for DeclaredSource { id, source } in
        annotated().filter_map(|declaration| declaration.key_from.as_ref())
    {
        let is_function = matches!(source, KeySource::Function(_));
        let known = sources.insert(*id, Some(*source)).is_some();
        if known && is_function {
            sources.insert(*id, None);
        }
    }
    sources
});

/// The source with this id, if there is one and only one.
pub(crate) fn source_of(id: u128) -> Option<KeySource> {
    SOURCES.get(&id).copied().flatten()
}

/// The packages of the annotated handlers, in alphabetical order.
pub(crate) fn packages() -> Vec<&'static str> {
    let packages: BTreeSet<_> = annotated().map(|operation| operation.package).collect();
    packages.into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn without_cargo_the_package_is_the_crate() {
        assert_eq!(package(Some("my-shop"), "my_shop::api"), "my-shop");
        assert_eq!(package(None, "my_shop::api"), "my_shop");
        assert_eq!(package(None, "my_shop"), "my_shop");
    }

    /// A handler whose attribute sets `ttl` only.
    pub(crate) const LEASED: Declaration = Declaration {
        package: "shop",
        module: "shop::api",
        name: "",
        handler: "pay",
        routes: &[route("POST", &["/payments", "pay"])],
        key_required: true,
        key_from: None,
        fingerprint: BodyForm::Raw,
        query: None,
        content_type: None,
        claim: ClaimMode::Lease,
        timeout: None,
        ttl: Some(Duration::from_secs(60)),
        lease: None,
        wait: None,
        record: None,
        abandoned: None,
        scope: None,
        extractors: &[],
        in_flight: None,
        transaction: None,
    };
}
