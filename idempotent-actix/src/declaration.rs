//! What `#[idempotent]` states about one handler.

use std::{
    any::TypeId,
    collections::{BTreeSet, HashMap},
    fmt,
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

/// The scope function that the attribute names.
pub trait DeclaredFunction: Sync {
    /// Returns the scope of a request.
    fn find(&self, request: &HttpRequest) -> Result<ScopeId, Option<Error>>;

    /// Which function it is, in the words of the specification.
    fn kind(&self) -> &'static str;
}

impl fmt::Debug for dyn DeclaredFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// The scope of a request, once it is known.
pub(crate) type ScopeFuture = LocalBoxFuture<'static, Result<ScopeId, Option<Error>>>;

/// Finds the scope of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestScope {
    /// With a scope function.
    Function(&'static dyn DeclaredFunction),
    /// With the extractor of a parameter.
    Parameter(fn(&HttpRequest) -> ScopeFuture),
}

/// Runs an extractor for a request other than its handler's.
pub(crate) type Check = fn(&HttpRequest) -> LocalBoxFuture<'static, Result<(), Error>>;

/// A parameter of a handler.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Runs its extractor; `None` if it [`IgnoresCaller`](crate::scope::IgnoresCaller).
    pub(crate) check: Option<Check>,
    /// Finds the database of its `Tx`; `None` if it has none.
    pub(crate) database: Option<fn() -> TxDatabase>,
}

impl Parameter {
    /// A parameter whose type has these properties.
    #[must_use]
    pub const fn new(ignored: Option<Ignored>, check: Option<Check>) -> Self {
        match ignored {
            Some(Ignored { database }) => Self { check: None, database },
            None => Self { check, database: None },
        }
    }
}

/// An extractor that [`IgnoresCaller`](crate::scope::IgnoresCaller).
#[derive(Clone, Copy, Debug)]
pub struct Ignored {
    /// Finds the database of its `Tx`; `None` if it has none.
    pub(crate) database: Option<fn() -> TxDatabase>,
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
    /// The parameters of the handler, in their order, without that of the scope.
    pub parameters: &'static [Parameter],
    /// The `in_flight` key; `None` is a conflict.
    pub in_flight: Option<InFlightRule>,
}

/// The keys of the attribute. Each is a method, because rustc takes much longer for a struct
/// expression that sets some of the fields, and there is one for each handler.
impl Declaration {
    /// `name`.
    #[must_use]
    pub const fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// `key = "optional"`.
    #[must_use]
    pub const fn optional_key(self) -> Self {
        Self { key_required: false, ..self }
    }

    /// `key_from`.
    #[must_use]
    pub const fn key_from(self, id: u128, source: KeySource) -> Self {
        Self { key_from: Some(DeclaredSource { id, source }), ..self }
    }

    /// `fingerprint`.
    #[must_use]
    pub const fn fingerprint(self, fingerprint: BodyForm) -> Self {
        Self { fingerprint, ..self }
    }

    /// `claim`.
    #[must_use]
    pub const fn claim(self, claim: ClaimMode) -> Self {
        Self { claim, ..self }
    }

    /// The database of the handler's `Tx`; `None` if the handler takes none.
    pub(crate) fn transaction(&self) -> Option<TxDatabase> {
        self.parameters.iter().find_map(|parameter| parameter.database).map(|find| find())
    }
}

macro_rules! durations {
    ($($name:ident)*) => { impl Declaration { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[must_use]
        pub const fn $name(self, milliseconds: u64) -> Self {
            Self { $name: Some(Duration::from_millis(milliseconds)), ..self }
        }
    )* } };
}

durations! { ttl lease wait timeout }

macro_rules! rules {
    ($($name:ident: $rule:ty)*) => { impl Declaration { $(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[must_use]
        pub const fn $name(self, $name: $rule) -> Self {
            Self { $name: Some($name), ..self }
        }
    )* } };
}

rules! {
    query: QueryForm
    content_type: ContentTypeForm
    record: RecordRule
    abandoned: OnAbandon
    in_flight: InFlightRule
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

/// The package of a handler that Cargo does not build: the name of the crate.
#[must_use]
pub const fn crate_of(module: &'static str) -> &'static str {
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

/// The attribute of a handler that sets nothing.
#[must_use]
pub const fn declaration(
    package: &'static str,
    module: &'static str,
    handler: &'static str,
    routes: &'static [Route],
    parameters: &'static [Parameter],
    scope: Option<RequestScope>,
) -> Declaration {
    Declaration {
        package,
        module,
        name: "",
        handler,
        routes,
        key_required: true,
        key_from: None,
        fingerprint: BodyForm::Raw,
        query: None,
        content_type: None,
        claim: ClaimMode::Lease,
        timeout: None,
        ttl: None,
        lease: None,
        wait: None,
        record: None,
        abandoned: None,
        parameters,
        scope,
        in_flight: None,
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

#[cfg(feature = "_tx")]
impl TxDatabase {
    /// The database `D`.
    pub(crate) fn of<D: sqlx::Database>() -> Self {
        Self { id: TypeId::of::<D>(), name: D::NAME }
    }
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
        assert_eq!(crate_of("my_shop::api"), "my_shop");
        assert_eq!(crate_of("my_shop"), "my_shop");
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
        parameters: &[],
        in_flight: None,
    };
}
