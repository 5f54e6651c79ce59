//! The same checkout twice: without `#[idempotent]` and with it. The page shows the source of both.

use std::time::Duration;

use actix_web::{
    http::StatusCode,
    web::{Data, ServiceConfig, scope},
};
use awc::Client;
use serde::{Deserialize, Serialize};

use crate::{demo::Side, error::ApiError, user::User};

mod bare;
mod guarded;

/// The path of both handlers within their scopes.
pub(crate) const PATH: &str = "/checkout";
/// The name of the guarded operation in the records.
pub(crate) const OPERATION: &str = "POST /guarded/checkout";
/// How long to wait for the bank: longer than it ever takes.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The routes: the handlers are the same, and each has the books of its side at the bank.
pub(crate) fn routes(config: &mut ServiceConfig, bank: &str) {
    let books = |side: Side| Data::new(Bank::new(bank, side));
    config
        .service(scope("/bare").app_data(books(Side::Bare)).service(bare::checkout))
        .service(scope("/guarded").app_data(books(Side::Guarded)).service(guarded::checkout));
}

/// The source of a handler, as the page shows it: its attributes and the function.
pub(crate) fn source(side: Side) -> &'static str {
    let file = match side {
        Side::Bare => include_str!("checkout/bare.rs"),
        Side::Guarded => include_str!("checkout/guarded.rs"),
    };
    file.find("#[").and_then(|start| file.get(start..)).unwrap_or(file).trim_end()
}

/// What the shopper orders.
#[derive(Deserialize)]
struct Order {
    /// In the currency's smallest unit.
    amount: u32,
}

/// A charge at the bank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Charge {
    pub(crate) charge: String,
    pub(crate) amount: u32,
}

/// The bank that the front process keeps. It knows no idempotency keys: each call is a charge.
struct Bank {
    url: String,
    client: Client,
}

impl Bank {
    fn new(url: &str, side: Side) -> Self {
        let client = Client::builder().timeout(TIMEOUT).finish();
        Self { url: format!("{url}/{side}"), client }
    }

    /// Charges the user's card.
    async fn charge(&self, user: &User, amount: u32) -> Result<Charge, ApiError> {
        let request = self.client.post(format!("{}/{}/{amount}", self.url, user.name()));
        // If the bank was called and did not respond, the money may have moved.
        let unknown = |cause: String| ApiError::bank_failed(cause).outcome_unknown();
        let mut response = request.send().await.map_err(|cause| unknown(cause.to_string()))?;
        match response.status() {
            StatusCode::OK => response.json().await.map_err(|cause| unknown(cause.to_string())),
            StatusCode::SERVICE_UNAVAILABLE => Err(ApiError::processor_down()),
            other => Err(unknown(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handlers_that_the_page_shows_differ_by_the_attribute_alone() {
        let (bare, guarded) = (source(Side::Bare), source(Side::Guarded));
        let (attribute, rest) = guarded.split_once('\n').unwrap();
        assert!(attribute.starts_with("#[idempotent(") && attribute.ends_with(")]"), "{attribute}");
        assert_eq!(rest, bare);
        assert!(bare.starts_with("#[post(") && bare.ends_with('}'), "{bare}");
    }

    #[test]
    fn the_files_of_the_handlers_differ_by_the_attribute_and_its_import_alone() {
        let lines = |file: &'static str| file.lines().filter(|line| !line.starts_with("//!"));
        let bare: Vec<_> = lines(include_str!("checkout/bare.rs")).collect();
        let guarded = lines(include_str!("checkout/guarded.rs"));
        let (added, common): (Vec<_>, Vec<_>) =
            guarded.partition(|line| line.contains("idempotent"));
        assert_eq!(added.len(), 2, "{added:?}");
        assert_eq!(common, bare);
    }
}
