//! Calling the next service of the chain.

use std::{fmt, time::Duration};

use actix_web::{ResponseError, http::StatusCode};
use idempotent_actix::{DerivedKey, Operation};
use idempotent_client::{ClientIdempotency, IdempotentRequest, Lookup};
use reqwest::{Client, Url, header};
use reqwest_middleware::ClientWithMiddleware;

use crate::services::Order;

/// How long to try to reach the next service. The caller tries again later.
const DEADLINE: Duration = Duration::from_secs(5);

/// The next service of the chain.
#[derive(Clone)]
pub(crate) struct Next {
    client: ClientWithMiddleware,
    url: Url,
    lookup: Lookup,
}

impl Next {
    /// `name` is that of the service which calls, as its principal at the next one.
    pub(crate) fn new(name: &str, url: &Url) -> Result<Self, Box<dyn std::error::Error>> {
        let mut headers = header::HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {name}").parse()?);
        let idempotency =
            ClientIdempotency::new().deadline(DEADLINE).attempt_timeout(Duration::from_secs(2));
        let client = idempotency.client(Client::builder().default_headers(headers))?;
        let lookup = Lookup::new(client.clone(), url.join("/idempotency/keys")?);
        Ok(Self { client, url: url.clone(), lookup })
    }

    /// Has an order processed by the next service, once. Returns the id of what that service did.
    pub(crate) async fn process(
        &self,
        operation: &Operation,
        order: &Order,
    ) -> actix_web::Result<String> {
        operation
            .step("next")
            // Every service sets the id as its reference, so a lookup is enough.
            .reconcile(async |key: DerivedKey| {
                let id = |id: Option<&str>| id.map(str::to_owned);
                Ok(self.lookup.reconcile(&key, id).await.map_err(failed)?)
            })
            .run(async |key| {
                let url = self.url.join("/process").map_err(failed)?;
                let request = self.client.post(url).idempotent().key(key.into());
                let response = request.json(order).send().await.map_err(failed)?;
                let response = response.error_for_status().map_err(failed)?;
                Ok(response.json().await.map_err(failed)?)
            })
            .await
    }
}

/// The next service could not be reached, or refused the order. The key is released, and the caller
/// sends its request again.
#[derive(Debug)]
struct NextFailed(String);

fn failed(error: impl fmt::Display) -> NextFailed {
    NextFailed(error.to_string())
}

impl fmt::Display for NextFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the next service failed: {}", self.0)
    }
}

impl ResponseError for NextFailed {
    fn status_code(&self) -> StatusCode {
        StatusCode::BAD_GATEWAY
    }
}
