//! Describes guarded operations in the OpenAPI document of the application.

use std::panic::{AssertUnwindSafe, catch_unwind};

use actix_web::{HttpResponse, body::MessageBody, http::header::CONTENT_TYPE};
use idempotent_http::openapi::{self, ProblemCase, Rendered, Server};
use serde_json::Value;

pub use idempotent_http::openapi::OpenApiReport;

use crate::{idempotency::Idempotency, lookup, outcome::RequestOutcome, resources::with_local};

impl Idempotency {
    /// Adds to an OpenAPI document what the guard adds to its operations: the key's header, the
    /// problems that each operation can respond with, the marks of replays, links to the lookup,
    /// and the policy, as `x-idempotency`.
    ///
    /// The document is of OpenAPI 3.0 or 3.1, whoever has written it: utoipa, apistos, or you. What
    /// it says already stays as it is. [The guide](crate::guide::openapi) shows what is added.
    ///
    /// ```
    /// use actix_web::{HttpResponse, get, web::Data};
    /// use idempotent_actix::Idempotency;
    /// use serde_json::json;
    ///
    /// #[get("/openapi.json")]
    /// async fn openapi(idempotency: Data<Idempotency>) -> HttpResponse {
    ///     let mut document = json!({
    ///         "openapi": "3.1.0",
    ///         "info": { "title": "Shop", "version": "1.0.0" },
    ///         "paths": { "/v1/payments": { "post": { "operationId": "pay", "responses": {} } } },
    ///     });
    ///     let report = idempotency.describe_openapi(&mut document);
    ///     if !report.is_complete() {
    ///         tracing::warn!("{report}");
    ///     }
    ///     HttpResponse::Ok().json(document)
    /// }
    /// ```
    ///
    /// An operation belongs to a handler if its `operationId` is the name of the handler, such as
    /// `pay` or `api::pay`, or if method and path fit. The report names what could not be matched.
    /// A handler that is routed by hand is found by its name, and by its path once this handle has
    /// seen a request of it.
    ///
    /// Problems are described as the application's renderer renders them: it is called with a
    /// request that no client has sent. Call `describe_openapi` when the application is built, as
    /// above: a lookup that is not created yet gets no links.
    pub fn describe_openapi(&self, document: &mut Value) -> OpenApiReport {
        let (specification, lookups) = (self.published(), lookup::paths());
        let render = |case: ProblemCase| self.rendered(case);
        openapi::describe(
            document,
            &Server { specification: &specification, lookups: &lookups, render: &render },
        )
    }

    /// A problem as the application or its dialect renders it; as JSON, if its renderer panics.
    fn rendered(&self, case: ProblemCase) -> Rendered {
        let problem = case.problem(self.problem(case.kind, case.kind.advice()));
        let rendered = with_local(|request| {
            catch_unwind(AssertUnwindSafe(|| self.render(&problem, UNSENT, request)))
        });
        rendered.map_or_else(|_| Rendered::json(&problem), read)
    }
}

/// The outcome of a request that no client has sent.
const UNSENT: RequestOutcome = RequestOutcome::Refused;

fn read(response: HttpResponse) -> Rendered {
    let headers = response.headers();
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next()).map(str::trim);
    let body = |response: HttpResponse| {
        let bytes = response.into_body().try_into_bytes().ok()?;
        serde_json::from_slice(&bytes).ok()
    };
    Rendered {
        status: response.status().as_u16(),
        media_type: media_type.map(str::to_owned),
        headers: headers.keys().map(|name| name.as_str().to_owned()).collect(),
        body: body(response),
    }
}
