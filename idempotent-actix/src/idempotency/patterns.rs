//! The patterns at which handlers are mounted, as the requests of the process have shown.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use actix_web::{HttpRequest, http::Method};
use idempotent_core::ShortText;

use crate::{
    declaration::Declaration,
    operation_name::{name_of, pattern_of},
};

/// A method and a pattern at which a handler is mounted, and the name of its operation there.
pub(crate) struct MountedRoute {
    method: Method,
    /// The full pattern; `None` if it is not known.
    pattern: Option<String>,
    /// The full name of the operation.
    pub(crate) name: String,
    /// The name as records show it.
    pub(crate) shown: ShortText,
}

impl MountedRoute {
    pub(crate) fn new(method: Method, pattern: Option<String>, name: String) -> Arc<Self> {
        let shown = ShortText::truncated(&name);
        Arc::new(Self { method, pattern, name, shown })
    }
}

/// The routes of each declaration, which its address identifies.
#[derive(Default)]
pub(crate) struct Patterns(RwLock<BTreeMap<usize, Vec<Arc<MountedRoute>>>>);

impl Patterns {
    /// The route of a request; `None` if the name of its operation contains the path of the
    /// request.
    pub(crate) fn route_of(
        &self,
        declaration: &'static Declaration,
        request: &HttpRequest,
    ) -> Option<Arc<MountedRoute>> {
        let (method, pattern) = (request.method(), pattern_of(declaration, request).ok()?);
        let address = address(declaration);
        let find = |routes: &[Arc<MountedRoute>]| {
            let mut routes = routes.iter();
            routes.find(|route| route.method == method && route.pattern == pattern).cloned()
        };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(route) = known.get(&address).and_then(|routes| find(routes)) {
            return Some(route);
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let routes = known.entry(address).or_default();
        // Between the two locks another request may have noted the same route.
        if let Some(route) = find(routes) {
            return Some(route);
        }
        let name = name_of(declaration, method, pattern.as_deref());
        let route = MountedRoute::new(method.clone(), pattern, name.into());
        routes.push(route.clone());
        routes.sort_by(|one, other| one.pattern.cmp(&other.pattern));
        Some(route)
    }

    /// The patterns at which requests with this method have shown a handler.
    pub(crate) fn of(&self, declaration: &'static Declaration, method: &str) -> Vec<String> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let routes = known.get(&address(declaration)).into_iter().flatten();
        let patterns =
            routes.filter(|route| route.method == method).filter_map(|route| route.pattern.clone());
        patterns.collect()
    }
}

fn address(declaration: &'static Declaration) -> usize {
    std::ptr::from_ref(declaration).addr()
}
