//! The client of the bank, which is another service (`bank/server.rs`).

use std::time::Duration;

use actix_web::{http::StatusCode, rt::time::sleep};
use awc::Client;
use idempotent_actix::{DerivedKey, Reconciliation};
use serde::{Deserialize, Serialize};

pub(crate) use self::card::Card;
use crate::error::ApiError;

mod card;
pub(crate) mod server;

/// How long to wait for a response: longer than the slowest card takes.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How often to ask for a charge that is in progress, and how long to wait in between.
const LOOKUPS: u32 = 40;
const LOOKUP_INTERVAL: Duration = Duration::from_millis(50);

/// An order to move money.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Transfer {
    /// The card, by its name.
    pub(crate) payment_method: String,
    /// The amount in the currency's smallest unit.
    pub(crate) amount: i64,
    pub(crate) currency: String,
}

/// What came of a transfer.
#[derive(Deserialize, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(crate) enum Outcome {
    Succeeded { id: String },
    Declined,
}

impl Outcome {
    /// The id of the transfer, if money has moved.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::Succeeded { id } => Some(id),
            Self::Declined => None,
        }
    }
}

/// What the bank knows about the charge with a key.
#[derive(Deserialize, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum Known {
    Found {
        id: String,
    },
    Absent,
    /// The charge is in progress.
    Unknown,
}

/// The bank. It makes one transfer per key: a second call with a key returns the first transfer.
pub(crate) struct Bank {
    url: String,
    client: Client,
}

impl Bank {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), client: Client::builder().timeout(TIMEOUT).finish() }
    }

    /// Charges a card.
    pub(crate) async fn charge(
        &self,
        key: DerivedKey,
        transfer: &Transfer,
    ) -> actix_web::Result<Outcome> {
        let charge = self.post("charges", &key, transfer).await?;
        if Card::parse(&transfer.payment_method) == Ok(Card::Crash) {
            crash();
        }
        Ok(charge)
    }

    /// Finds out whether there is a charge with this key. Waits up to 2 s for one that is in
    /// progress.
    pub(crate) async fn find_charge(
        &self,
        key: DerivedKey,
    ) -> actix_web::Result<Reconciliation<Outcome>> {
        for _ in 0..LOOKUPS {
            match self.look_up(&key).await? {
                Known::Found { id } => {
                    return Ok(Reconciliation::Found(Outcome::Succeeded { id }));
                }
                Known::Absent => return Ok(Reconciliation::Absent),
                Known::Unknown => sleep(LOOKUP_INTERVAL).await,
            }
        }
        Ok(Reconciliation::Unknown)
    }

    /// Refunds money to a card.
    pub(crate) async fn refund(
        &self,
        key: &DerivedKey,
        transfer: &Transfer,
    ) -> Result<Outcome, ApiError> {
        self.post("refunds", key, transfer).await
    }

    async fn post(
        &self,
        path: &str,
        key: &DerivedKey,
        transfer: &Transfer,
    ) -> Result<Outcome, ApiError> {
        let request = self.client.post(format!("{}/{path}", self.url));
        let request = request.insert_header(("Idempotency-Key", key.to_string()));
        let mut response = request.send_json(transfer).await.map_err(ApiError::bank_failed)?;
        match response.status() {
            StatusCode::OK => response.json().await.map_err(ApiError::bank_failed),
            StatusCode::SERVICE_UNAVAILABLE => Err(ApiError::processor_down()),
            other => Err(ApiError::bank_failed(other)),
        }
    }

    async fn look_up(&self, key: &DerivedKey) -> Result<Known, ApiError> {
        let request = self.client.get(format!("{}/charges/{key}", self.url));
        let mut response = request.send().await.map_err(ApiError::bank_failed)?;
        response.json().await.map_err(ApiError::bank_failed)
    }
}

#[expect(clippy::panic, reason = "pm_card_crash shows what a retry does after a panic")]
fn crash() {
    panic!("pm_card_crash: the card is charged, and the handler panics")
}
