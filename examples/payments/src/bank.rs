//! A simulated card processor. Like a real one it makes one transfer per key: a second call with
//! the same key returns the first transfer, and moves no money.

use std::time::Duration;

use actix_web::rt::time::sleep;
use idempotent_actix::DerivedKey;
use sqlx::SqlitePool;

use crate::ledger::new_id;

/// The longest delay of a slow card, in milliseconds.
pub(crate) const MAX_DELAY_MILLIS: u64 = 60_000;

/// A test card, which decides how the processor behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Card {
    /// The charge succeeds.
    Visa,
    /// The bank declines.
    ChargeDeclined,
    /// The charge succeeds, but the processor's response is delayed.
    Slow(Duration),
    /// The processor cannot be reached.
    ProcessorDown,
    /// The charge succeeds, and then this server panics.
    Crash,
}

impl Card {
    /// Parses the name of a payment method; the error is a message for the client.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name.strip_prefix("pm_card_") {
            Some("visa") => Ok(Self::Visa),
            Some("chargeDeclined") => Ok(Self::ChargeDeclined),
            Some("processorDown") => Ok(Self::ProcessorDown),
            Some("crash") => Ok(Self::Crash),
            Some(other) => match other.strip_prefix("slow_").map(str::parse) {
                Some(Ok(millis)) if millis <= MAX_DELAY_MILLIS => {
                    Ok(Self::Slow(Duration::from_millis(millis)))
                }
                Some(_) => Err(format!(
                    "A slow card is `pm_card_slow_MS` with at most {MAX_DELAY_MILLIS} ms."
                )),
                None => Err(format!("No such PaymentMethod: '{name}'")),
            },
            None => Err(format!("No such PaymentMethod: '{name}'")),
        }
    }
}

/// Why no money moved.
#[derive(Debug)]
pub(crate) enum BankError {
    /// The bank declined.
    Declined,
    /// The processor could not be reached.
    Down,
    /// The simulated processor's database failed.
    Database(sqlx::Error),
}

/// One transfer of money.
pub(crate) struct Transfer<'a> {
    /// The idempotency key of the transfer.
    pub(crate) key: &'a DerivedKey,
    /// How the processor behaves.
    pub(crate) card: Card,
    /// The amount in the currency's smallest unit.
    pub(crate) amount: i64,
    pub(crate) currency: &'a str,
}

/// The processor, with its table `bank_transfers`.
pub(crate) struct Bank(SqlitePool);

impl Bank {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        Self(pool)
    }

    /// Charges a card and returns the charge's id.
    pub(crate) async fn charge(&self, transfer: &Transfer<'_>) -> Result<String, BankError> {
        match transfer.card {
            Card::ChargeDeclined => return Err(BankError::Declined),
            Card::ProcessorDown => return Err(BankError::Down),
            Card::Visa | Card::Slow(_) | Card::Crash => {}
        }
        self.transfer("ch", transfer).await
    }

    /// Refunds money to a card.
    pub(crate) async fn refund(&self, transfer: &Transfer<'_>) -> Result<String, BankError> {
        self.transfer("re", transfer).await
    }

    /// Moves the money, and then responds. A caller that is interrupted in between does not know
    /// the outcome.
    async fn transfer(&self, kind: &str, transfer: &Transfer<'_>) -> Result<String, BankError> {
        let id = self.insert(kind, transfer).await.map_err(BankError::Database)?;
        match transfer.card {
            Card::Slow(time) => sleep(time).await,
            Card::Crash => crash(),
            Card::Visa | Card::ChargeDeclined | Card::ProcessorDown => {}
        }
        Ok(id)
    }

    async fn insert(&self, kind: &str, transfer: &Transfer<'_>) -> Result<String, sqlx::Error> {
        let rows: Vec<String> = sqlx::query_scalar(
            "INSERT INTO bank_transfers (key, id, kind, amount, currency)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (key) DO UPDATE SET requests = requests + 1 RETURNING id",
        )
        .bind(transfer.key.to_string())
        .bind(new_id(kind))
        .bind(if kind == "ch" { "charge" } else { "refund" })
        .bind(transfer.amount)
        .bind(transfer.currency)
        .fetch_all(&self.0)
        .await?;
        rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
    }
}

#[expect(clippy::panic, reason = "pm_card_crash shows what a retry does after a panic")]
fn crash() {
    panic!("pm_card_crash: the card is charged, and the handler panics")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_parsed_from_its_name() {
        assert_eq!(Card::parse("pm_card_visa"), Ok(Card::Visa));
        assert_eq!(Card::parse("pm_card_slow_1500"), Ok(Card::Slow(Duration::from_millis(1500))));
        for name in [
            "",
            "visa",
            "pm_card_",
            "pm_card_slow_",
            "pm_card_slow_-1",
            "pm_card_slow_60001",
            "pm_card_slow_1e3",
        ] {
            assert!(Card::parse(name).is_err(), "{name}");
        }
    }
}
