//! The responses of an operation: its own, and the problems of the guard.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Document, Names, ProblemCase, Rendered, Server,
    problems::{self, may_prove_not_run},
    schemas, spelled,
};
use crate::{recording::RecordRule, specification::PublishedOperation};

/// A problem that an operation can respond with, as its server renders it.
pub(super) type Case = (ProblemCase, Rendered);

/// What the components of problems are called, followed by their status.
const COMPONENT: &str = "IdempotencyProblem";
/// The description of the response to a duplicate that is to poll.
const ACCEPTED: &str = "The first request with this idempotency key is in progress.";

/// The problems of an operation, by the status that its clients see.
pub(super) fn problems(
    handler: &PublishedOperation,
    server: &Server<'_>,
) -> BTreeMap<u16, Vec<Case>> {
    let mut by_status = BTreeMap::<_, Vec<_>>::new();
    for case in problems::of(handler, server) {
        let mut rendered = (server.render)(case);
        if may_prove_not_run(case.kind) && is_in_usual_header(handler, server) {
            rendered.headers.push(server.specification.not_run_marker.to_string());
        }
        by_status.entry(rendered.status).or_default().push((case, rendered));
    }
    by_status
}

/// Whether the key is in the header that the application has set. The proof belongs to such a key.
fn is_in_usual_header(handler: &PublishedOperation, server: &Server<'_>) -> bool {
    handler.key_from.strip_prefix("header:") == Some(&server.specification.header)
}

/// A reference to the response with these problems, unless the operation has another response,
/// which cannot be ours.
pub(super) fn of_problems(
    stated: Option<&Value>,
    (status, cases): (u16, &[Case]),
    names: &Names,
    document: &mut Document<'_>,
) -> Option<Value> {
    let name = format!("{COMPONENT}{status}");
    let can_be_ours = |stated: &Value| {
        let reference = stated.get("$ref").and_then(Value::as_str);
        reference.is_some_and(|it| it.starts_with(&format!("#/components/responses/{name}")))
    };
    if !stated.is_none_or(can_be_ours) {
        return None;
    }
    let response = response(cases, names, document);
    Some(document.component("responses", &name, response))
}

/// The response to a duplicate that is to poll, unless the operation has another one, which cannot
/// be ours.
pub(super) fn accepted(
    stated: Option<&Value>,
    names: &Names,
    document: &mut Document<'_>,
) -> Option<Map<String, Value>> {
    if stated.is_some_and(|stated| stated["description"] != ACCEPTED) {
        return None;
    }
    let schema = schemas::in_flight(document);
    let headers = schemas::headers(["Location", "Retry-After"], names, document);
    let members = [
        ("description", ACCEPTED.into()),
        ("headers", headers.into()),
        ("content", json!({ "application/json": { "schema": schema } })),
    ];
    Some(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The codes of these problems, for a report.
pub(super) fn codes(cases: &[Case]) -> String {
    let mut codes: Vec<_> = cases.iter().map(|(case, rendered)| code(*case, rendered)).collect();
    codes.dedup();
    codes.join(", ")
}

fn response(cases: &[Case], names: &Names, document: &mut Document<'_>) -> Value {
    let (mut lines, mut headers) = (Vec::new(), Vec::new());
    let mut media_types = BTreeMap::<_, Vec<_>>::new();
    for (case, rendered) in cases {
        let line = format!("`{}`: {}.", code(*case, rendered), case.kind.title());
        if !lines.contains(&line) {
            lines.push(line);
        }
        headers.extend(rendered.headers.iter().map(|name| spelled(name)));
        if let Some(media_type) = &rendered.media_type {
            media_types.entry(media_type.clone()).or_default().push((*case, rendered));
        }
    }
    let mut response = Map::new();
    response.insert("description".into(), lines.join("\n\n").into());
    let headers = schemas::headers(headers.iter().map(String::as_str), names, document);
    let content = media_types.into_iter();
    let content = content.map(|(media_type, cases)| (media_type, media(&cases, document)));
    for (member, value) in [("headers", headers), ("content", content.collect())] {
        if !value.is_empty() {
            response.insert(member.into(), value.into());
        }
    }
    response.into()
}

/// A media type with an example of each problem, and its schema if all of them have that form.
fn media(cases: &[(ProblemCase, &Rendered)], document: &mut Document<'_>) -> Value {
    let mut media = Map::new();
    let bodies = || cases.iter().map(|(_, rendered)| rendered.body.as_ref());
    if bodies().all(|body| body.is_some_and(schemas::is_problem)) {
        media.insert("schema".into(), schemas::problem(document));
    }
    let mut examples = Map::new();
    for (case, rendered) in cases {
        let Some(body) = &rendered.body else { continue };
        let mut name = code(*case, rendered);
        if examples.contains_key(&name) {
            name.push_str("_held");
        }
        examples.insert(name, json!({ "summary": case.kind.title(), "value": body }));
    }
    if !examples.is_empty() {
        media.insert("examples".into(), Value::Object(examples));
    }
    Value::Object(media)
}

/// The code of a problem, as clients see it.
fn code(case: ProblemCase, rendered: &Rendered) -> String {
    let code = rendered.body.as_ref().and_then(|body| body.get("code")).and_then(Value::as_str);
    code.unwrap_or(case.kind.code()).to_owned()
}

/// Whether the responses of an operation with this status, range of statuses or `default` can be
/// replays.
pub(super) fn can_be_replayed(status: &str, handler: &PublishedOperation) -> bool {
    let rules = [RecordRule::Success, RecordRule::All];
    let mut rules = rules.into_iter().filter(|rule| rule.specified() == handler.record);
    let rule = rules.next().unwrap_or_default();
    match status.get(..1).and_then(|class| class.parse::<u16>().ok()) {
        Some(class) => rule.keeps(status.parse().unwrap_or(class.saturating_mul(100))),
        None => true,
    }
}
