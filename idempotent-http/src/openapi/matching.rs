//! Finds the operations of a document that belong to guarded handlers.

use std::collections::BTreeSet;

use super::{
    OpenApiReport,
    template::{Fit, fit},
};
use crate::specification::{PublishedOperation, PublishedRoute};

/// An operation of a document.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The path of its path item.
    pub(super) path: String,
    /// Its method, in upper case.
    pub(super) method: String,
    /// Its `operationId`.
    pub(super) id: Option<String>,
    /// Where its path item is in the document.
    pub(super) item: String,
    /// Where it is in the document.
    pub(super) pointer: String,
    /// Whether several paths share it.
    pub(super) shared: bool,
}

impl Place {
    /// The operation in a report.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A handler that an operation may belong to.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    handler: &'a PublishedOperation,
    route: &'a PublishedRoute,
    name: NameFit,
    path: Fit,
}

/// How the `operationId` fits the name of a handler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameFit {
    Other,
    Function,
    WithModule,
}

/// Finds the handler of each operation, and reports what has none or several.
pub(super) fn find<'p, 'h>(
    places: &'p [Place],
    handlers: &'h [PublishedOperation],
    report: &mut OpenApiReport,
) -> Vec<(&'p Place, &'h PublishedOperation)> {
    let (mut found, mut unclear) = (Vec::new(), BTreeSet::new());
    for place in places {
        let candidates = candidates(place, handlers);
        match best(&candidates) {
            Some(best) => found.push((place, best)),
            None if candidates.is_empty() => {}
            None => {
                let names: Vec<_> = candidates.iter().map(|c| c.handler.full_name()).collect();
                unclear.extend(candidates.iter().map(|c| address(c.route)));
                let names = names.join(" or ");
                report.ambiguous.push(format!("{}: it may be {names}", place.label()));
            }
        }
    }
    let is_weak =
        |candidate: &Candidate<'_>| candidate.name == NameFit::Other && candidate.path < Fit::Exact;
    // The end of its path alone does not say which of several operations is that of a route.
    let rivals = |candidate: &Candidate<'_>| {
        found.iter().filter(|(_, other)| address(other.route) == address(candidate.route)).count()
    };
    let (doubtful, clear): (Vec<_>, Vec<_>) = found
        .iter()
        .copied()
        .partition(|(_, candidate)| is_weak(candidate) && rivals(candidate) > 1);
    for (place, candidate) in doubtful {
        unclear.insert(address(candidate.route));
        let name = candidate.handler.full_name();
        report.ambiguous.push(format!("{}: it may be {name} or not", place.label()));
    }
    let seen: BTreeSet<_> = clear.iter().map(|(_, candidate)| address(candidate.route)).collect();
    for handler in handlers {
        let routes = handler.routes.iter();
        let lacking = routes
            .filter(|route| !seen.contains(&address(route)) && !unclear.contains(&address(route)));
        report.missing.extend(lacking.map(|route| route_of(handler, route)));
    }
    clear.into_iter().map(|(place, candidate)| (place, candidate.handler)).collect()
}

/// The identity of a route: two handlers may have equal ones.
fn address(route: &PublishedRoute) -> usize {
    std::ptr::from_ref(route).addr()
}

fn route_of(handler: &PublishedOperation, route: &PublishedRoute) -> String {
    let name = handler.full_name();
    match &route.path {
        Some(path) => format!("{} {path} ({name})", route.method),
        None => format!("{} ({name})", route.method),
    }
}

/// The handlers that an operation may belong to, each with the route that fits best.
fn candidates<'h>(place: &Place, handlers: &'h [PublishedOperation]) -> Vec<Candidate<'h>> {
    let candidate = |handler: &'h PublishedOperation| {
        let routes = handler.routes.iter().filter(|route| route.method == place.method);
        let routes = routes.map(|route| (route_fit(route, &place.path), route));
        let (path, route) = routes.max_by_key(|(fit, _)| *fit)?;
        let name = name_fit(place.id.as_deref(), handler);
        let belongs = path >= Fit::Suffix || (path == Fit::Unknown && name > NameFit::Other);
        belongs.then_some(Candidate { handler, route, name, path })
    };
    handlers.iter().filter_map(candidate).collect()
}

/// The full patterns are better known than that of the attribute, where requests have been served.
fn route_fit(route: &PublishedRoute, path: &str) -> Fit {
    let mounted = route.mounted.iter().map(|pattern| fit(pattern, path)).max();
    let declared = route.path.as_deref().map(|pattern| fit(pattern, path));
    mounted.or(declared).unwrap_or(Fit::Unknown)
}

fn name_fit(id: Option<&str>, handler: &PublishedOperation) -> NameFit {
    let Some(id) = id else { return NameFit::Other };
    let full = handler.full_name();
    let before = full.strip_suffix(id);
    if id == handler.handler {
        NameFit::Function
    } else if before.is_some_and(|before| before.is_empty() || before.ends_with("::")) {
        NameFit::WithModule
    } else {
        NameFit::Other
    }
}

/// The candidate that no other one equals or exceeds in any respect.
fn best<'c, 'h>(candidates: &'c [Candidate<'h>]) -> Option<Candidate<'h>> {
    let exceeds = |one: &Candidate<'_>, other: &Candidate<'_>| {
        one.name >= other.name
            && one.path >= other.path
            && (one.name, one.path) != (other.name, other.path)
    };
    let is_best = |one: &&'c Candidate<'h>| {
        candidates.iter().all(|other| std::ptr::eq(*one, other) || exceeds(one, other))
    };
    candidates.iter().find(is_best).copied()
}
