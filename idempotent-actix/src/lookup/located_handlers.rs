//! Which handlers a lookup means, and the principal that they see in its request.

use std::{collections::BTreeMap, iter::repeat_n, panic::AssertUnwindSafe, sync::Once};

use actix_web::{Error, HttpRequest};
use futures_util::FutureExt;
use idempotent_core::ScopeId;

use crate::{
    declaration::{Declaration, RequestScope, annotated},
    resources::{path_of, placeholders},
};

/// The handlers that may serve an operation.
pub(super) struct Handlers {
    /// The full name of the operation.
    pub(super) name: String,
    declarations: Vec<&'static Declaration>,
    /// Whether the application is known to have the operation.
    is_located: bool,
}

/// The operations that a lookup may mean: the selected one, or all that the application has.
pub(super) fn operations(selected: Option<&str>, request: &HttpRequest) -> Vec<Handlers> {
    if let Some(selected) = selected {
        return vec![Handlers::of(selected, request)];
    }
    let mut names: Vec<_> = annotated().flat_map(names).collect();
    names.sort_unstable();
    names.dedup();
    let all = names.iter().map(|name| Handlers::of(name, request));
    all.filter(|handlers| handlers.is_located).collect()
}

impl Handlers {
    /// The handlers that may serve the operation with this full name.
    ///
    /// Patterns are known without the scopes of the application above them, so the pattern of
    /// another handler may end like that of the one that is meant. The resource of a handler, which
    /// the application finds by its name, tells where the handler is. If no handler is found so,
    /// those that may be meant count, also those whose patterns are not known.
    fn of(name: &str, request: &HttpRequest) -> Self {
        let declarations: Vec<_> =
            annotated().filter(|declaration| may_serve(declaration, name)).collect();
        let is_located =
            |declaration: &&&'static Declaration| is_located(declaration, name, request);
        let located: Vec<_> = declarations.iter().filter(is_located).copied().collect();
        let is_located = !located.is_empty();
        let declarations = if is_located || declarations.is_empty() {
            located
        } else {
            declarations
                .into_iter()
                .chain(annotated().filter(|declaration| is_unlocated(declaration, name)))
                .collect()
        };
        Self { name: name.to_owned(), declarations, is_located }
    }

    /// The handlers by the namespace of their records.
    pub(super) fn by_namespace<'a>(
        &self,
        namespace_of: impl Fn(&'static Declaration) -> &'a str,
    ) -> BTreeMap<&'a str, Vec<&'static Declaration>> {
        let mut namespaces = BTreeMap::<_, Vec<_>>::new();
        for declaration in &self.declarations {
            namespaces.entry(namespace_of(declaration)).or_default().push(*declaration);
        }
        namespaces
    }
}

/// The full names of an operation whose routes are in no scope of the application.
fn names(declaration: &'static Declaration) -> Vec<String> {
    if !declaration.name.is_empty() {
        return vec![declaration.name.to_owned()];
    }
    let routes = declaration.routes.iter().filter_map(|route| {
        let path = route.resource.map(|resource| resource.path)?;
        Some(format!("{} {path}", route.method))
    });
    routes.collect()
}

/// Whether the operation with this full name may be that of the handler.
fn may_serve(declaration: &'static Declaration, name: &str) -> bool {
    if !declaration.name.is_empty() {
        return placeholders(declaration.name) == placeholders(name);
    }
    names(declaration).iter().any(|own| is_mounted(own, name))
}

/// Whether `full` is `name`, such as `POST /payments`, in a scope of the application. The names of
/// dynamic segments do not count.
fn is_mounted(name: &str, full: &str) -> bool {
    match (name.split_once(' '), full.split_once(' ')) {
        (Some((method, path)), Some((full_method, full_path))) => {
            method == full_method && placeholders(full_path).ends_with(&placeholders(path))
        }
        _ => false,
    }
}

/// Whether the resource of the handler has the pattern of this full name, or the handler has this
/// name itself.
fn is_located(declaration: &Declaration, name: &str, request: &HttpRequest) -> bool {
    if !declaration.name.is_empty() {
        return true;
    }
    let Some((method, pattern)) = name.split_once(' ') else { return false };
    let routes = declaration.routes.iter().filter(|route| route.method == method);
    routes.filter_map(|route| route.resource).any(|resource| {
        // Dynamic segments may be restricted to letters or to digits.
        ["x", "1"].into_iter().any(|segment| {
            let path = path_of(request, resource.name, &mut repeat_n(segment.to_owned(), 64));
            let found = path.and_then(|path| request.resource_map().match_pattern(&path));
            found.is_some_and(|found| placeholders(&found) == placeholders(pattern))
        })
    })
}

/// Whether a handler that is routed by hand may serve the operation with this full name.
fn is_unlocated(declaration: &Declaration, name: &str) -> bool {
    let method = name.split_once(' ').map(|(method, _)| method);
    declaration.name.is_empty()
        && declaration
            .routes
            .iter()
            .any(|route| route.resource.is_none() && method == Some(route.method))
}

/// The principal of a request, as all of these handlers see it.
///
/// If several handlers may be meant, the lookup shows only what each of them would show.
///
/// # Errors
/// Fails if one of the handlers would refuse the request: with the error of an extractor, or with
/// `None` if there is no principal. `Ok(None)`: no lookup can find the operation.
pub(super) async fn principal(
    declarations: &[&'static Declaration],
    request: &HttpRequest,
) -> Result<Option<ScopeId>, Option<Error>> {
    let mut principal = None;
    for declaration in declarations {
        let found = AssertUnwindSafe(principal_of(declaration, request)).catch_unwind().await;
        let Ok(found) = found else {
            tracing::error!(
                handler = declaration.handler,
                "an extractor or a scope function of a handler panicked in a lookup; put the \
                 lookup behind the middleware of the handler"
            );
            return Ok(None);
        };
        let Some(scope) = found?.filter(|scope| !scope.is_empty()) else { return Ok(None) };
        if *principal.get_or_insert_with(|| scope.clone()) != scope {
            log_ambiguity(declarations);
            return Ok(None);
        }
    }
    Ok(principal)
}

/// The principal of a request, if the extractors of the handler accept it. They run before the
/// scope is used, as in a replay.
async fn principal_of(
    declaration: &Declaration,
    request: &HttpRequest,
) -> Result<Option<ScopeId>, Option<Error>> {
    let Some(scope) = declaration.scope else { return Ok(None) };
    for check in declaration.parameters.iter().filter_map(|parameter| parameter.check) {
        check(request).await.map_err(Some)?;
    }
    match scope {
        RequestScope::Function(function) => function.find(request).map(Some),
        RequestScope::Parameter(extract) => extract(request).await.map(Some),
    }
}

/// Logs once that no client can look up an operation, because any client can ask for any name.
fn log_ambiguity(declarations: &[&'static Declaration]) {
    static LOGGED: Once = Once::new();
    let handlers: Vec<_> = declarations.iter().map(|declaration| declaration.handler).collect();
    LOGGED.call_once(|| {
        tracing::warn!(
            ?handlers,
            "a lookup may mean several handlers, whose scopes differ; it shows nothing of them \
             until each has a `name`"
        );
    });
}
