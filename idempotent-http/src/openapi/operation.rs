//! Adds what the guard adds to one operation.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    Document, Names, OpenApiReport, Server,
    links::{Lookup, full_name},
    matching::Place,
    parameter::{self, Stated},
    responses, schemas,
};
use crate::specification::PublishedOperation;

/// The extension that has the policy of an operation.
const EXTENSION: &str = "x-idempotency";

/// What is added to one operation.
pub(super) struct Patch<'a> {
    pub(super) server: &'a Server<'a>,
    pub(super) handler: &'a PublishedOperation,
    pub(super) lookup: Option<&'a Lookup>,
    pub(super) names: &'a Names,
}

impl Patch<'_> {
    /// Adds it to the operation at this place of the document.
    pub(super) fn apply(
        &self,
        place: &Place,
        document: &mut Document<'_>,
        report: &mut OpenApiReport,
    ) {
        let mut taken = document.take(&place.pointer);
        let mut kept = Vec::new();
        if let Value::Object(operation) = &mut taken {
            self.parameter(operation, place, document, &mut kept);
            self.responses(operation, place, document, &mut kept);
            add(operation, EXTENSION, self.policy(&place.method), &mut kept);
        }
        document.put(&place.pointer, taken);
        let label = place.label();
        report.kept.extend(kept.into_iter().map(|entry| format!("{label}: {entry}")));
        report.described.push(format!("{label} ({})", self.handler.full_name()));
    }

    fn parameter(
        &self,
        operation: &mut Map<String, Value>,
        place: &Place,
        document: &mut Document<'_>,
        kept: &mut Vec<String>,
    ) {
        let Some(header) = parameter::header_of(self.handler) else { return };
        let rules = &self.server.specification.key;
        let ours = parameter::of(&header, self.handler, rules);
        let inherited = document.at(&format!("{}/parameters", place.item)).cloned();
        let lists = operation.get("parameters").into_iter().chain(&inherited);
        match parameter::stated(&header, &ours, lists, document) {
            Stated::Ours => {}
            Stated::ByHand => kept.push(format!("it has the parameter {header}")),
            Stated::Elsewhere => kept.push(format!(
                "it has a parameter that is not in the document, and may be {header}"
            )),
            Stated::Nothing => {
                let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
                let Value::Array(parameters) = parameters else {
                    kept.push("its `parameters` are not a list".to_owned());
                    return;
                };
                let name = parameter::component(&header, &ours);
                parameters.push(document.component("parameters", &name, ours));
            }
        }
    }

    fn responses(
        &self,
        operation: &mut Map<String, Value>,
        place: &Place,
        document: &mut Document<'_>,
        kept: &mut Vec<String>,
    ) {
        let responses = operation.entry("responses").or_insert_with(|| json!({}));
        let Value::Object(responses) = responses else {
            kept.push("its `responses` are not an object".to_owned());
            return;
        };
        let header = parameter::header_of(self.handler);
        let method = &place.method;
        let links = self.lookup.and_then(|it| it.links(header.as_deref(), self.handler, method));
        let mut ours = Map::new();
        for (status, cases) in responses::problems(self.handler, self.server) {
            let (name, cases) = (status.to_string(), cases.as_slice());
            let stated = responses.get(&name);
            match responses::of_problems(stated, (status, cases), self.names, document) {
                Some(response) => drop(ours.insert(name, response)),
                None => {
                    let codes = responses::codes(cases);
                    kept.push(format!("it has the response {name}, which lacks {codes}"));
                }
            }
        }
        if self.handler.in_flight == "poll" {
            match responses::accepted(responses.get("202"), self.names, document) {
                Some(mut response) => {
                    let links = links.clone().map(|links| ("links".to_owned(), links.into()));
                    response.extend(links);
                    ours.insert("202".to_owned(), response.into());
                }
                None => kept.push("it has the response 202, which lacks `in_flight`".to_owned()),
            }
        }
        for (status, response) in responses.iter_mut() {
            if ours.get(status) != Some(response) && !status.starts_with("x-") {
                self.own_response((status, response), links.as_ref(), document, kept);
            }
        }
        for (status, response) in ours {
            add(responses, &status, response, kept);
        }
    }

    /// Adds to a response of the operation what marks a replay, and the link to the lookup.
    fn own_response(
        &self,
        (status, response): (&str, &mut Value),
        links: Option<&Map<String, Value>>,
        document: &mut Document<'_>,
        kept: &mut Vec<String>,
    ) {
        let is_replayed = responses::can_be_replayed(status, self.handler);
        let links = links.filter(|_| status.starts_with('2'));
        if !is_replayed && links.is_none() {
            return;
        }
        let Some(response) = response.as_object_mut().filter(|it| !it.contains_key("$ref")) else {
            kept.push(format!("its response {status} is a reference, which lacks our headers"));
            return;
        };
        if is_replayed {
            let marks = [self.names.replayed.as_str(), self.names.replay.as_str()].into_iter();
            let marks = marks.chain(self.names.expires.as_deref());
            let marks = schemas::headers(marks, self.names, document);
            add_all(response, "headers", marks, status, kept);
        }
        if let Some(links) = links {
            add_all(response, "links", links.clone(), status, kept);
        }
    }

    /// The policy, for clients that are generated from the document.
    fn policy(&self, method: &str) -> Value {
        let handler = self.handler;
        let members = [
            ("key", Some(json!(handler.key))),
            ("key_from", Some(json!(handler.key_from))),
            ("operation", full_name(handler, method).map(Value::from)),
            ("scope", handler.scope.as_deref().map(Value::from)),
            ("fingerprint", Some(json!(handler.fingerprint))),
            ("ignore", handler.ignore.as_ref().map(|pointers| json!(pointers))),
            ("only", handler.only.as_ref().map(|pointers| json!(pointers))),
            ("ttl_seconds", Some(seconds(handler.ttl_seconds))),
            ("wait_seconds", Some(seconds(handler.wait_seconds))),
            ("timeout_seconds", handler.timeout_seconds.map(seconds)),
            ("in_flight", Some(json!(handler.in_flight))),
            ("abandoned", handler.abandoned.as_deref().map(Value::from)),
            ("record", Some(json!(handler.record))),
        ];
        let members = members.into_iter();
        members.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Adds members to an object of a response, but those that it has already. Names of headers are
/// compared without case.
fn add_all(
    response: &mut Map<String, Value>,
    member: &str,
    ours: Map<String, Value>,
    status: &str,
    kept: &mut Vec<String>,
) {
    let place = response.entry(member).or_insert_with(|| json!({}));
    let Value::Object(place) = place else {
        kept.push(format!("the `{member}` of its response {status} are not an object"));
        return;
    };
    for (name, value) in ours {
        let same = place.iter().find(|(found, _)| found.eq_ignore_ascii_case(&name));
        match same {
            None => drop(place.insert(name, value)),
            Some((_, found)) if *found == value => {}
            Some(_) => kept.push(format!("its response {status} has {name} in its `{member}`")),
        }
    }
}

/// Adds a member, unless the object has it already.
fn add(object: &mut Map<String, Value>, name: &str, value: Value, kept: &mut Vec<String>) {
    let member = object.entry(name).or_insert_with(|| value.clone());
    if *member != value {
        kept.push(format!("it has `{name}`"));
    }
}

/// A number of seconds, as a whole number if it is one.
fn seconds(seconds: f64) -> Value {
    match Duration::try_from_secs_f64(seconds) {
        Ok(whole) if whole.subsec_nanos() == 0 => whole.as_secs().into(),
        _ => seconds.into(),
    }
}
