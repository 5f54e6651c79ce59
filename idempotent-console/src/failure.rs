//! Why a request has no result, as a page or as a problem in JSON (RFC 9457).

use std::fmt;

use actix_web::{
    Error, HttpMessage as _, HttpRequest, HttpResponse, ResponseError,
    error::InternalError,
    http::{StatusCode, header::CONTENT_TYPE},
};
use idempotent_core::{StoreError, report::RecordView};
use maud::html;
use serde_json::json;

use crate::{
    layout::{self, HTML, Place},
    tables::records_table,
    visit::Visit,
};

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request asks for something that cannot be.
    Invalid(String),
    /// Who asks may not do that.
    Forbidden(String),
    /// There is no such record or page.
    NotFound(String),
    /// The record is not in the state, or not the attempt, that was seen.
    Conflict(String),
    /// Several records are meant.
    Ambiguous(String, Vec<RecordView>),
    /// The store failed.
    Store(StoreError),
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) | Self::Ambiguous(..) => StatusCode::CONFLICT,
            Self::Store(error) if error.is_unsupported() => StatusCode::NOT_IMPLEMENTED,
            Self::Store(error) if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The kind, for programs.
    const fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::NotFound(_) => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Ambiguous(..) => "ambiguous",
            Self::Store(_) => "store_failed",
        }
    }

    /// The kind, as a heading.
    const fn title(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "That cannot be",
            Self::Forbidden(_) => "Not allowed",
            Self::NotFound(_) => "Not found",
            Self::Conflict(_) => "Nothing was changed",
            Self::Ambiguous(..) => "Several records",
            Self::Store(_) => "The store failed",
        }
    }

    /// A sentence. The causes of the store's error, which may name servers, are only in the log.
    fn detail(&self) -> String {
        match self {
            Self::Invalid(detail)
            | Self::Forbidden(detail)
            | Self::NotFound(detail)
            | Self::Conflict(detail)
            | Self::Ambiguous(detail, _) => detail.clone(),
            Self::Store(error) if error.is_unsupported() => {
                "this store has no lists for operators; records can be found by their whole ids"
                    .to_owned()
            }
            Self::Store(error) if error.is_transient() => {
                "the store does not respond as it should; whether a decision took effect is not \
                 known. Look at the record again before you repeat it"
                    .to_owned()
            }
            Self::Store(_) => "the store refused the call; the log of the server says why".into(),
        }
    }

    fn candidates(&self) -> &[RecordView] {
        match self {
            Self::Ambiguous(_, candidates) => candidates,
            Self::Invalid(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Store(_) => &[],
        }
    }

    /// The response to this visitor.
    pub(crate) fn response(&self, visit: &Visit) -> HttpResponse {
        if visit.is_api {
            return self.error_response();
        }
        HttpResponse::build(self.status()).content_type(HTML).body(page(visit, self))
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        self.status()
    }

    fn error_response(&self) -> HttpResponse {
        let mut problem = json!({
            "title": self.title(),
            "status": self.status().as_u16(),
            "code": self.code(),
            "detail": self.detail(),
        });
        if let (Self::Ambiguous(_, candidates), Some(problem)) = (self, problem.as_object_mut()) {
            problem.insert("candidates".to_owned(), json!(candidates));
        }
        HttpResponse::build(self.status())
            .insert_header((CONTENT_TYPE, "application/problem+json"))
            .body(problem.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let cause = std::error::Error::source(&error).map(tracing::field::display);
        tracing::error!(%error, cause, "the console cannot read or change a record");
        Self::Store(error)
    }
}

/// The error of an extractor.
pub(crate) fn of_input(error: impl fmt::Display, request: &HttpRequest) -> Error {
    let failure = Failure::Invalid(format!("the request cannot be read: {error}"));
    let response = match request.extensions().get::<Visit>() {
        Some(visit) => failure.response(visit),
        None => failure.error_response(),
    };
    InternalError::from_response(failure, response).into()
}

/// What is at every other path.
pub(crate) async fn absent(visit: Visit) -> HttpResponse {
    Failure::NotFound("there is no such page".into()).response(&visit)
}

/// The page of a failure.
fn page(visit: &Visit, failure: &Failure) -> String {
    let candidates = failure.candidates();
    let content = html! {
        p role="alert" { (sentence(&failure.detail())) }
        @if !candidates.is_empty() {
            (records_table(visit, "The records that may be meant", candidates))
        }
        // The way back keeps what was filled in.
        p { "Go back with your browser, or " a href=(visit.base) { "to the overview" } "." }
    };
    layout::page(visit, Place::Other, failure.title(), &content).into_string()
}

/// A text as a sentence.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase).into_iter().flatten();
    let mut sentence: String = first.chain(characters).collect();
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}
