//! Links from an operation to the lookup of its key.

use serde_json::{Map, Value, json};

use super::{
    Document, OpenApiReport,
    document::escaped,
    matching::Place,
    template::{Fit, fit, key_parameter},
};
use crate::specification::PublishedOperation;

/// The name of the link in a response.
const NAME: &str = "idempotencyLookup";

/// The operation of the document that looks up a key.
pub(super) struct Lookup {
    /// The member of a link that names the operation.
    target: (&'static str, String),
    key: String,
    takes_operation: bool,
}

/// Finds the lookup in the document, if the server has one. Several that may be it are reported.
pub(super) fn find(
    document: &Document<'_>,
    places: &[Place],
    lookups: &[String],
    report: &mut OpenApiReport,
) -> Option<Lookup> {
    let mut found: Vec<_> = places
        .iter()
        .filter(|place| place.method == "GET")
        .filter_map(|place| {
            let best = lookups.iter().map(|pattern| (fit(pattern, &place.path), pattern)).max()?;
            (best.0 >= Fit::Suffix).then_some((best, place))
        })
        .collect();
    found.sort_by_key(|((fit, _), _)| std::cmp::Reverse(*fit));
    match found.as_slice() {
        [] => {
            let lookups = lookups.iter();
            report.missing.extend(lookups.map(|pattern| format!("GET {pattern} (the lookup)")));
            None
        }
        [((one, _), place), ((other, _), rival), ..] if one == other => {
            let (place, rival) = (place.label(), rival.label());
            report.ambiguous.push(format!("{place}: it or {rival} may be the lookup"));
            None
        }
        [((_, pattern), place), ..] => Lookup::of(document, pattern, place),
    }
}

impl Lookup {
    fn of(document: &Document<'_>, pattern: &str, place: &Place) -> Option<Self> {
        let key = key_parameter(pattern, &place.path)?.to_owned();
        let target = match &place.id {
            Some(id) => ("operationId", id.clone()),
            None => {
                let path = escaped(&place.path);
                (
                    "operationRef",
                    format!("#/paths/{}/get", path.replace('{', "%7B").replace('}', "%7D")),
                )
            }
        };
        let lists = [&place.item, &place.pointer].map(|at| format!("{at}/parameters"));
        let lists = lists.iter().filter_map(|at| document.at(at)?.as_array()).flatten();
        let mut parameters = lists.filter_map(|parameter| Some(document.resolved(parameter)?.1));
        let takes_operation = parameters
            .any(|parameter| parameter["in"] == "query" && parameter["name"] == "operation");
        Some(Self { target, key, takes_operation })
    }

    /// The links of a response of this operation. None if no expression names its key.
    pub(super) fn links(
        &self,
        header: Option<&str>,
        handler: &PublishedOperation,
        method: &str,
    ) -> Option<Map<String, Value>> {
        let key = match (header, handler.key_from.strip_prefix("json:")) {
            (Some(header), _) => format!("$request.header.{header}"),
            (None, Some(pointer)) => format!("$request.body#{pointer}"),
            (None, None) => return None,
        };
        let mut parameters = json!({ self.key.as_str(): key });
        if let (true, Some(name), Value::Object(parameters)) =
            (self.takes_operation, full_name(handler, method), &mut parameters)
        {
            parameters.insert("operation".into(), name.into());
        }
        let link = json!({
            self.target.0: self.target.1,
            "parameters": parameters,
            "description": "The state and the outcome of the request with this idempotency key.",
        });
        Some([(NAME.to_owned(), link)].into_iter().collect())
    }
}

/// The name of the operation in records, if it is known.
pub(super) fn full_name(handler: &PublishedOperation, method: &str) -> Option<String> {
    if let Some(name) = &handler.name {
        return Some(name.to_string());
    }
    let routes = handler.routes.iter().filter(|route| route.method == method);
    let mut mounted = routes.flat_map(|route| &route.mounted);
    let pattern = mounted.next().filter(|_| mounted.next().is_none())?;
    Some(format!("{method} {pattern}"))
}
