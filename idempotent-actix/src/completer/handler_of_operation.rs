//! Which handler an operation belongs to.

use std::fmt;

use idempotent_core::Policy;

use crate::{
    declaration::{Declaration, annotated},
    idempotency::Idempotency,
    policy::PolicyConflict,
};

/// The reason why an operation has no handler whose rules apply to it.
#[derive(Debug)]
pub(super) enum NoHandler {
    Unknown,
    /// The name may be that of several handlers, whose rules differ.
    Ambiguous(Vec<&'static str>),
    Policy(PolicyConflict),
}

/// How well a handler fits the full name of an operation. The best comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    /// The handler has the end of the name, and may be mounted in a scope of the application.
    Mounted,
    /// The handler is routed by hand, to a pattern that is not known.
    RoutedByHand,
}

/// Finds the handler of an operation, and its policy.
///
/// Patterns are known without the scopes of the application above them. If the name may be that of
/// several handlers, their rules must be the same; a guess could apply the rules of another one.
pub(super) fn find(
    idempotency: &Idempotency,
    name: &str,
) -> Result<(&'static Declaration, Policy), NoHandler> {
    let fitting =
        || annotated().filter_map(|declaration| Some((fit(declaration, name)?, declaration)));
    let best = fitting().map(|(fit, _)| fit).min().ok_or(NoHandler::Unknown)?;
    let candidates: Vec<_> =
        fitting().filter(|(fit, _)| *fit == best).map(|(_, declaration)| declaration).collect();
    let mut rules = Vec::new();
    for declaration in &candidates {
        let policy = idempotency.policy(declaration).map_err(NoHandler::Policy)?;
        let record = idempotency.settings().policy.record_rule(declaration);
        let limit = idempotency.time_limit(declaration);
        let namespace = idempotency.namespace_of(declaration);
        rules.push((policy, record, declaration.claim, limit, namespace));
    }
    match (candidates.first(), rules.first()) {
        (Some(declaration), Some(first)) if rules.iter().all(|other| other == first) => {
            Ok((*declaration, first.0))
        }
        _ => Err(NoHandler::Ambiguous(
            candidates.iter().map(|declaration| declaration.handler).collect(),
        )),
    }
}

fn fit(declaration: &Declaration, name: &str) -> Option<Fit> {
    if !declaration.name.is_empty() {
        return (declaration.name == name).then_some(Fit::Exact);
    }
    let (method, pattern) = name.split_once(' ')?;
    let routes = declaration.routes.iter().filter(|route| route.method == method);
    let fits = routes.filter_map(|route| match route.resource {
        None => Some(Fit::RoutedByHand),
        Some(resource) if resource.path == pattern => Some(Fit::Exact),
        Some(resource) => pattern.ends_with(resource.path).then_some(Fit::Mounted),
    });
    fits.min()
}

impl fmt::Display for NoHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no annotated handler has this name"),
            Self::Ambiguous(handlers) => write!(
                f,
                "the handlers {} may have this name, and their rules differ; give each a `name`",
                handlers.join(", ")
            ),
            Self::Policy(conflict) => conflict.fmt(f),
        }
    }
}
