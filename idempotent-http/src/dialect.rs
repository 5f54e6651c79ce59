//! Dialects: how a server speaks of idempotency, as one value.
//!
//! The protocol is the same in each dialect: which requests run, wait, are refused or get a
//! recorded response. A dialect says what the headers are called, what a problem looks like, and to
//! which endpoint a key belongs.

use std::{borrow::Cow, collections::HashMap};

use serde_json::{Value, json};

use crate::{
    header_names,
    problem::{MEDIA_TYPE, Problem, ProblemKind},
    recording::RecordRule,
};

mod supplied;
mod token;

pub use self::token::{InvalidToken, Token};

/// How a server speaks of idempotency. The dialect of an application is one of the supplied ones
/// with other values:
///
/// ```
/// use idempotent_http::{
///     dialect::{Dialect, Token},
///     problem::ProblemKind,
/// };
///
/// fn of_our_api() -> Dialect {
///     let mut dialect = Dialect::ietf();
///     dialect.name = "example".into();
///     dialect.expiry_header = Some(Token::from_static("x-key-expires"));
///     dialect.problem_mut(ProblemKind::InFlight).status = Some(423);
///     dialect
/// }
/// # assert_eq!(of_our_api().problem(ProblemKind::InFlight).status, Some(423));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Dialect {
    /// The name, for the published specification.
    pub name: Cow<'static, str>,
    /// The name of the header with the key.
    pub key_header: Token,
    /// The header that marks a replayed response.
    pub replay_marker: Marker,
    /// Whether each response to a request with a key has the key, in a header of the same name.
    pub echoes_key: bool,
    /// The header that says until when the key is remembered, as an HTTP date (RFC 9110 §5.6.7). A
    /// response with this header costs one more read of the record.
    pub expiry_header: Option<Token>,
    /// To what a key belongs besides its principal.
    pub endpoint: Endpoint,
    /// The methods whose requests need a key, also where the attribute says `key = "optional"`.
    pub required_methods: Vec<Cow<'static, str>>,
    /// The methods whose requests need no key, also where the attribute says `key = "required"`.
    /// A key that is sent is used.
    pub optional_methods: Vec<Cow<'static, str>>,
    /// Which responses are recorded, unless the application or the attribute says otherwise.
    pub record: RecordRule,
    /// How problems are written.
    pub problem_shape: ProblemShape,
    problems: HashMap<ProblemKind, ProblemForm>,
}

/// A header with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The name of the header.
    pub name: Token,
    /// Its value.
    pub value: Token,
}

/// To what a key belongs besides its principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Endpoint {
    /// The operation: its method and its route pattern, or its `name`. A key that was used for
    /// `POST /orders/1/refund` is a key of `POST /orders/2/refund`, which gets 422.
    #[default]
    Pattern,
    /// The operation and the path of the request: at `POST /orders/2/refund` the key is new.
    Path,
}

impl Endpoint {
    /// Returns the endpoint in the words of the specification.
    #[must_use]
    pub const fn specified(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Path => "path",
        }
    }
}

/// How a problem is written as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProblemShape {
    /// An `application/problem+json` (RFC 9457).
    #[default]
    Problem,
    /// A problem with one more member, `error`: an object with `type`, `code`, `message` and
    /// `doc_url`.
    WithError,
    /// An `application/json` with `type`, `code` and `message` alone.
    Flat,
}

/// What a dialect says of one kind of problem. `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProblemForm {
    /// The status, in place of the [usual one](ProblemKind::status).
    pub status: Option<u16>,
    /// The code, in place of the [project's](ProblemKind::code).
    pub code: Option<Cow<'static, str>>,
    /// The type of the error, which problems (RFC 9457) do not have.
    pub error_type: Option<Cow<'static, str>>,
    /// The text, in place of the title.
    pub title: Option<Cow<'static, str>>,
    /// What the client can do, in place of the detail. It is the same for each request.
    pub detail: Option<Cow<'static, str>>,
}

impl Dialect {
    /// Returns what the dialect says of a kind of problem.
    #[must_use]
    pub fn problem(&self, kind: ProblemKind) -> ProblemForm {
        self.problems.get(&kind).cloned().unwrap_or_default()
    }

    /// Returns what the dialect says of a kind of problem, to change it.
    pub fn problem_mut(&mut self, kind: ProblemKind) -> &mut ProblemForm {
        self.problems.entry(kind).or_default()
    }

    /// Returns the problem with the status of the dialect, unless it has an unusual one.
    #[must_use]
    pub fn with_status(&self, problem: Problem) -> Problem {
        let kind = problem.kind();
        let form = self.problems.get(&kind).and_then(|form| form.status);
        match form {
            Some(status) if problem.status() == kind.status() => problem.with_status(status),
            _ => problem,
        }
    }

    /// Returns the media type and the body of a problem.
    #[must_use]
    pub fn write(&self, problem: &Problem) -> (&'static str, Value) {
        let kind = problem.kind();
        let form = self.problem(kind);
        let code = form.code.unwrap_or(kind.code().into());
        let title = form.title.unwrap_or(kind.title().into());
        let detail = form.detail.unwrap_or(problem.detail().to_owned().into());
        let error_type = form.error_type.unwrap_or("invalid_request".into());
        let message = format!("{title}. {detail}");
        if self.problem_shape == ProblemShape::Flat {
            let body = json!({ "type": error_type, "code": code, "message": message });
            return ("application/json", body);
        }
        let mut body = problem.to_json();
        if let Value::Object(members) = &mut body {
            members.insert("title".into(), title.into());
            members.insert("detail".into(), detail.into());
            if self.problem_shape == ProblemShape::WithError {
                let error = json!({
                    "type": error_type,
                    "code": code,
                    "message": message,
                    "doc_url": problem.documentation(),
                });
                members.insert("error".into(), error);
            } else {
                members.insert("code".into(), code.into());
            }
        }
        (MEDIA_TYPE, body)
    }

    /// Returns whether a request with this method needs a key, where the attribute says so or not.
    #[must_use]
    pub fn requires_key(&self, method: &str, attribute: bool) -> bool {
        let has = |methods: &[Cow<'static, str>]| methods.iter().any(|listed| listed == method);
        (attribute && !has(&self.optional_methods)) || has(&self.required_methods)
    }

    /// Returns the headers that JavaScript in a browser can read only if a CORS configuration
    /// exposes them.
    pub fn exposed_headers(&self) -> impl Iterator<Item = &str> {
        let echo = self.echoes_key.then_some(&self.key_header);
        let own = [Some(&self.replay_marker.name), self.expiry_header.as_ref(), echo];
        let own = own.into_iter().flatten().map(Token::as_str);
        let others = header_names::EXPOSED_HEADERS.into_iter();
        own.chain(others.filter(|name| *name != header_names::REPLAYED))
    }

    /// Returns the kind of problem with this code, in any supplied dialect.
    #[must_use]
    pub fn kind_of_code(code: &str) -> Option<ProblemKind> {
        match code {
            "idempotency_key_in_use" | "idempotency_in_flight" => Some(ProblemKind::InFlight),
            "idempotency_conflict" => Some(ProblemKind::KeyReused),
            "idempotency_key_required" => Some(ProblemKind::KeyMissing),
            code => ProblemKind::of_code(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_writes_problems_as_they_are() {
        let dialect = Dialect::default();
        for kind in ProblemKind::ALL {
            let problem = Problem::new(kind, kind.advice(), "/idempotency#");
            assert_eq!(dialect.with_status(problem.clone()).status(), kind.status());
            assert_eq!(dialect.write(&problem), (MEDIA_TYPE, problem.to_json()));
        }
    }

    #[test]
    fn a_client_knows_the_codes_of_each_supplied_dialect() {
        for dialect in [Dialect::ietf(), Dialect::stripe(), Dialect::acp()] {
            for kind in ProblemKind::ALL {
                let code = dialect.problem(kind).code.unwrap_or(kind.code().into());
                assert_eq!(Dialect::kind_of_code(&code), Some(kind), "{code}");
            }
        }
    }

    #[test]
    fn an_unusual_status_stays() {
        let mut dialect = Dialect::ietf();
        dialect.problem_mut(ProblemKind::Overloaded).status = Some(529);
        let problem = Problem::new(ProblemKind::Overloaded, "", "");
        assert_eq!(dialect.with_status(problem.clone()).status(), 529);
        assert_eq!(dialect.with_status(problem.with_status(429)).status(), 429);
    }

    #[test]
    fn other_words_are_written_in_each_shape() {
        let mut dialect = Dialect::ietf();
        let form = dialect.problem_mut(ProblemKind::InFlight);
        form.code = Some("busy".into());
        form.title = Some("Busy".into());
        form.detail = Some("Come back.".into());
        let problem = Problem::new(ProblemKind::InFlight, "d", "/p#");
        let (_, body) = dialect.write(&problem);
        assert_eq!(
            (&body["code"], &body["title"], &body["detail"]),
            (&json!("busy"), &json!("Busy"), &json!("Come back."))
        );
        dialect.problem_shape = ProblemShape::WithError;
        let (_, body) = dialect.write(&problem);
        assert_eq!((&body["code"], &body["error"]["code"]), (&json!("in_flight"), &json!("busy")));
        dialect.problem_shape = ProblemShape::Flat;
        let flat =
            json!({ "type": "invalid_request", "code": "busy", "message": "Busy. Come back." });
        assert_eq!(dialect.write(&problem), ("application/json", flat));
    }

    #[test]
    fn the_headers_of_a_dialect_are_exposed() {
        let ietf: Vec<_> = Dialect::ietf().exposed_headers().map(str::to_owned).collect();
        assert_eq!(ietf, header_names::EXPOSED_HEADERS);
        let mut acp = Dialect::acp();
        acp.expiry_header = Some(Token::from_static("x-expires"));
        let acp: Vec<_> = acp.exposed_headers().map(str::to_owned).collect();
        assert_eq!(acp[..3], ["idempotent-replayed", "x-expires", "idempotency-key"]);
        assert!(!acp.iter().any(|name| name == header_names::REPLAYED));
    }
}
