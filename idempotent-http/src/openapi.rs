//! Adds to an OpenAPI document what a server's guard adds to its operations.
//!
//! [`describe`] changes a document of OpenAPI 3.0 or 3.1 in place, whoever has written it. What a
//! document says already is never changed: hand-written parts win.

use serde_json::Value;

use crate::{
    header_names,
    problem::{MEDIA_TYPE, Problem, ProblemKind},
    specification::PublishedSpecification,
};

mod document;
mod links;
mod matching;
mod operation;
mod parameter;
mod problems;
mod report;
mod responses;
mod schemas;
mod template;
#[cfg(test)]
mod tests;

pub use self::report::OpenApiReport;
use self::{document::Document, operation::Patch};

/// The server that a document describes.
#[derive(Clone, Copy)]
pub struct Server<'a> {
    /// The policy of each operation.
    pub specification: &'a PublishedSpecification,
    /// The patterns of the resources at which clients look up their keys, each with `{key}`,
    /// without the scopes above them.
    pub lookups: &'a [String],
    /// Renders a problem as the server does.
    pub render: &'a dyn Fn(ProblemCase) -> Rendered,
}

/// A case of a problem that an operation can respond with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemCase {
    /// The kind.
    pub kind: ProblemKind,
    /// The status before it is rendered.
    pub status: u16,
    /// Whether the same request may be sent again.
    pub retryable: bool,
    /// Whether the response says when to retry.
    pub retry_after: bool,
}

/// A problem as a server renders it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The status.
    pub status: u16,
    /// The media type of the body, without parameters; `None`: there is no body.
    pub media_type: Option<String>,
    /// The names of the headers, in lower case.
    pub headers: Vec<String>,
    /// The body, if it is JSON.
    pub body: Option<Value>,
}

impl ProblemCase {
    /// Returns this case of the problem that the server makes of its kind.
    #[must_use]
    pub fn problem(self, mut problem: Problem) -> Problem {
        if self.retry_after {
            problem = problem.with_retry_after(1);
        }
        if !self.retryable {
            problem = problem.not_retryable();
        }
        problem.with_status(self.status)
    }
}

impl Rendered {
    /// Returns the problem as `application/problem+json`.
    #[must_use]
    pub fn json(problem: &Problem) -> Self {
        Self {
            status: problem.status(),
            media_type: Some(MEDIA_TYPE.to_owned()),
            headers: problem.headers().map(|(name, _)| name.to_owned()).collect(),
            body: Some(problem.to_json()),
        }
    }
}

/// Adds to each operation of the document that the server guards
///
/// * the header parameter of the key, if the key is in a header,
/// * the problems that the operation can respond with, and with `in_flight = "poll"` the response
///   202,
/// * to its own responses the headers that mark a replay, and a link to the lookup of the key,
/// * `x-idempotency`, the policy by which a client can retry.
///
/// An operation of the document is that of a handler if its `operationId` is the name of the
/// handler, with or without its module, or if method and path fit. Paths are compared by their
/// structure; one may lack the scopes or the base URL of the other. What fits several handlers is
/// reported and left as it is.
///
/// To describe a document a second time changes nothing.
pub fn describe(document: &mut Value, server: &Server<'_>) -> OpenApiReport {
    let mut report = OpenApiReport::default();
    let Some(mut document) = Document::new(document) else {
        let version = ["openapi", "swagger"].into_iter().find_map(|member| document.get(member));
        report.kept.push(match version {
            Some(version) => format!("the document is of version {version}, not OpenAPI 3"),
            None => "the document is not an OpenAPI document".to_owned(),
        });
        return report;
    };
    let operations = document.operations(&mut report);
    let lookup = links::find(&document, &operations, server.lookups, &mut report);
    let found = matching::find(&operations, &server.specification.operations, &mut report);
    for (place, handler) in found {
        if let Some(shared) = place.shared.then(|| place.label()) {
            report.kept.push(format!("{shared}: several paths share its path item"));
            continue;
        }
        let patch = Patch { server, handler, lookup: lookup.as_ref(), names: &Names::of(server) };
        patch.apply(place, &mut document, &mut report);
    }
    report
}

/// The names of headers, as a document spells them.
struct Names {
    replayed: String,
    replay: String,
    not_run: String,
    /// The header that says until when a key is remembered, if there is one.
    expires: Option<String>,
    /// Whether the value of the replay marker is that of the usual dialect.
    is_usual_marker: bool,
}

impl Names {
    fn of(server: &Server<'_>) -> Self {
        Self {
            replayed: spelled(&server.specification.replay_marker),
            replay: spelled(header_names::REPLAY),
            not_run: spelled(&server.specification.not_run_marker),
            expires: server.specification.expiry_header.as_deref().map(spelled),
            is_usual_marker: server.specification.dialect.is_none(),
        }
    }
}

/// The usual spelling of a header name: `Idempotency-Key`.
fn spelled(name: &str) -> String {
    if name.eq_ignore_ascii_case("www-authenticate") {
        return "WWW-Authenticate".to_owned();
    }
    let mut at_start = true;
    let letter = |letter: char| {
        let spelled = if at_start { letter.to_ascii_uppercase() } else { letter };
        at_start = letter == '-';
        spelled
    };
    name.chars().map(letter).collect()
}
