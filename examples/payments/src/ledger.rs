//! The ledger of payments and refunds. Every change is one statement, so a server that is killed
//! leaves no partial change.

use std::collections::BTreeMap;

use idempotent_actix::DerivedKey;
use serde_json::{Value, json};
use sqlx::{FromRow, Row, SqlitePool, sqlite::SqliteRow};

use crate::{bank::Transfer, books::Entry, error::ApiError, user::User};

/// The parameters of a new payment.
pub(crate) struct NewIntent {
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) payment_method: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A row of `payment_intents`.
pub(crate) struct Intent {
    pub(crate) id: String,
    amount: i64,
    currency: String,
    payment_method: Option<String>,
    description: Option<String>,
    metadata: String,
    status: String,
    latest_charge: Option<String>,
    created: i64,
}

impl Intent {
    /// The payment as an object of Stripe's API.
    pub(crate) fn to_json(&self) -> Value {
        let received = if self.status == "succeeded" { self.amount } else { 0 };
        json!({
            "id": self.id,
            "object": "payment_intent",
            "amount": self.amount,
            "amount_received": received,
            "created": self.created,
            "currency": self.currency,
            "description": self.description,
            "latest_charge": self.latest_charge,
            "livemode": false,
            "metadata": serde_json::from_str::<Value>(&self.metadata).unwrap_or_default(),
            "payment_method": self.payment_method,
            "payment_method_types": ["card"],
            "status": self.status,
        })
    }
}

impl FromRow<'_, SqliteRow> for Intent {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            amount: row.try_get("amount")?,
            currency: row.try_get("currency")?,
            payment_method: row.try_get("payment_method")?,
            description: row.try_get("description")?,
            metadata: row.try_get("metadata")?,
            status: row.try_get("status")?,
            latest_charge: row.try_get("latest_charge")?,
            created: row.try_get("created")?,
        })
    }
}

/// The tables of the ledger.
pub(crate) const SCHEMA: &str = include_str!("schema.sql");

/// The ledger's file.
pub(crate) struct Ledger(SqlitePool);

impl Ledger {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        Self(pool)
    }

    /// Inserts a payment, before the bank is called. A second attempt with the same key continues
    /// with the row of the first. A different payment with that key is refused.
    pub(crate) async fn open_intent(
        &self,
        user: &User,
        new: &NewIntent,
        status: &str,
        charge_key: &DerivedKey,
    ) -> Result<Intent, ApiError> {
        let rows = sqlx::query_as(
            "INSERT INTO payment_intents
                (id, owner, charge_key, amount, currency, payment_method, description,
                 metadata, status)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (charge_key) DO UPDATE SET attempts = attempts + 1
                WHERE (owner, amount, currency)
                      = (excluded.owner, excluded.amount, excluded.currency)
                  AND payment_method IS excluded.payment_method
             RETURNING *",
        )
        .bind(new_id("pi"))
        .bind(user.name())
        .bind(charge_key.to_string())
        .bind(new.amount)
        .bind(&new.currency)
        .bind(&new.payment_method)
        .bind(&new.description)
        .bind(json!(new.metadata).to_string())
        .bind(status);
        first(rows.fetch_all(&self.0).await?).ok_or_else(ApiError::key_spent)
    }

    /// Records the result of the bank: the charge, or `None` for a declined card.
    pub(crate) async fn settle_intent(
        &self,
        id: &str,
        charge: Option<&str>,
    ) -> Result<Intent, ApiError> {
        let status = if charge.is_some() { "succeeded" } else { "requires_payment_method" };
        let rows = sqlx::query_as(
            "UPDATE payment_intents SET status = ?2, latest_charge = ?3 WHERE id = ?1 RETURNING *",
        )
        .bind(id)
        .bind(status)
        .bind(charge);
        first(rows.fetch_all(&self.0).await?).ok_or_else(|| sqlx::Error::RowNotFound.into())
    }

    /// Inserts a ledger entry, unless an earlier attempt has.
    pub(crate) async fn insert_entry(&self, entry: &Entry<'_>) -> actix_web::Result<()> {
        let insert = sqlx::query(
            "INSERT INTO entries (payment, charge, amount, currency)
             SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM entries WHERE payment = ?1)",
        )
        .bind(entry.payment)
        .bind(entry.charge)
        .bind(entry.amount)
        .bind(entry.currency);
        insert.execute(&self.0).await.map_err(ApiError::from)?;
        Ok(())
    }

    /// Inserts a receipt, unless an earlier attempt has.
    pub(crate) async fn insert_receipt(&self, entry: &Entry<'_>) -> actix_web::Result<()> {
        let insert = sqlx::query(
            "INSERT INTO receipts (payment)
             SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE payment = ?1)",
        );
        insert.bind(entry.payment).execute(&self.0).await.map_err(ApiError::from)?;
        Ok(())
    }

    /// A payment of this user.
    pub(crate) async fn intent(
        &self,
        user: &User,
        id: &str,
        param: &'static str,
    ) -> Result<Intent, ApiError> {
        let rows = sqlx::query_as("SELECT * FROM payment_intents WHERE id = ?1 AND owner = ?2")
            .bind(id)
            .bind(user.name());
        let missing = || ApiError::missing("payment_intent", id, param);
        rows.fetch_optional(&self.0).await?.ok_or_else(missing)
    }

    /// The payments of this user, newest first; those older than `after`, if that is given.
    pub(crate) async fn intents(
        &self,
        user: &User,
        after: Option<&str>,
        most: i64,
    ) -> Result<Vec<Intent>, ApiError> {
        let rows = sqlx::query_as(
            "SELECT * FROM payment_intents
             WHERE owner = ?1 AND (?2 IS NULL OR number < (
                SELECT number FROM payment_intents WHERE id = ?2 AND owner = ?1))
             ORDER BY number DESC LIMIT ?3",
        );
        Ok(rows.bind(user.name()).bind(after).bind(most).fetch_all(&self.0).await?)
    }

    /// Inserts a refund of an amount, or of the rest, and returns its id and the transfer. One
    /// statement compares and inserts, so that two concurrent refunds cannot exceed the payment.
    pub(crate) async fn open_refund(
        &self,
        user: &User,
        intent: &str,
        amount: Option<i64>,
        key: &DerivedKey,
    ) -> Result<(String, Transfer), ApiError> {
        let rows = sqlx::query_as(include_str!("open_refund.sql"))
            .bind(new_id("re"))
            .bind(key.to_string())
            .bind(intent)
            .bind(user.name())
            .bind(amount);
        let Some((id, amount)) = first(rows.fetch_all(&self.0).await?) else {
            return Err(self.refund_refusal(user, intent, amount).await?);
        };
        let intent = self.intent(user, intent, "payment_intent").await?;
        let payment_method = intent.payment_method.unwrap_or_default();
        Ok((id, Transfer { payment_method, amount, currency: intent.currency }))
    }

    /// The error for a refund that was not inserted.
    async fn refund_refusal(
        &self,
        user: &User,
        id: &str,
        amount: Option<i64>,
    ) -> Result<ApiError, ApiError> {
        let intent = self.intent(user, id, "payment_intent").await?;
        if intent.status != "succeeded" {
            let message =
                format!("This PaymentIntent ({id}) does not have a successful charge to refund.");
            return Ok(ApiError::invalid("payment_intent_unexpected_state", message)
                .with_param("payment_intent"));
        }
        let refunded = sqlx::query_scalar(
            "SELECT coalesce(sum(amount), 0) FROM refunds WHERE payment_intent = ?1",
        );
        let left = intent.amount - refunded.bind(id).fetch_one(&self.0).await.unwrap_or(0);
        Ok(match amount {
            _ if left == 0 => {
                let charge = intent.latest_charge.unwrap_or_default();
                ApiError::invalid(
                    "charge_already_refunded",
                    format!("Charge {charge} has already been refunded."),
                )
            }
            Some(amount) if amount > left => {
                let message = format!(
                    "Refund amount ({amount}) is greater than unrefunded amount on charge ({left})."
                );
                ApiError::invalid("amount_too_large", message).with_param("amount")
            }
            _ => ApiError::key_spent(),
        })
    }

    /// Records that the bank has refunded the money.
    pub(crate) async fn settle_refund(&self, id: &str) -> Result<Value, ApiError> {
        let rows = sqlx::query(
            "UPDATE refunds SET status = 'succeeded' WHERE id = ?1
             RETURNING *,
                (SELECT currency FROM payment_intents p WHERE p.id = payment_intent) AS currency,
                (SELECT latest_charge FROM payment_intents p WHERE p.id = payment_intent)
                    AS charge",
        );
        let row = first(rows.bind(id).fetch_all(&self.0).await?).ok_or(sqlx::Error::RowNotFound)?;
        Ok(json!({
            "id": row.try_get::<String, _>("id")?,
            "object": "refund",
            "amount": row.try_get::<i64, _>("amount")?,
            "charge": row.try_get::<Option<String>, _>("charge")?,
            "created": row.try_get::<i64, _>("created")?,
            "currency": row.try_get::<String, _>("currency")?,
            "payment_intent": row.try_get::<String, _>("payment_intent")?,
            "status": row.try_get::<String, _>("status")?,
        }))
    }

    /// The numbers of payments and refunds, for the summary at start.
    pub(crate) async fn counts(&self) -> Result<(i64, i64), sqlx::Error> {
        let counts =
            "SELECT (SELECT count(*) FROM payment_intents), (SELECT count(*) FROM refunds)";
        sqlx::query_as(counts).fetch_one(&self.0).await
    }
}

/// The row that a statement returned. Callers fetch all rows, because SQLite commits after the last
/// one.
fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}

/// A new id in the form of Stripe's: a prefix such as `pi` and 32 hex digits.
pub(crate) fn new_id(kind: &str) -> String {
    format!("{kind}_{}", uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use actix_web::{FromRequest, test::TestRequest};
    use idempotent_actix::{Key, RecordId, scope::ScopeId};

    use super::*;
    use crate::sqlite;

    fn key(label: &str) -> DerivedKey {
        RecordId::new("payments", &ScopeId::new("a"), "POST /", &Key::from_text("k").unwrap())
            .derive_key(label)
    }

    #[actix_web::test]
    async fn a_second_attempt_finds_the_first_and_refunds_cannot_exceed_the_payment() {
        let file = std::env::temp_dir().join(format!("{}.db", new_id("ledger")));
        let ledger = Ledger::new(sqlite::open(&file, SCHEMA).await.unwrap());
        let request = TestRequest::default()
            .insert_header(("authorization", "Bearer sk_test_a"))
            .to_http_request();
        let user = User::extract(&request).await.unwrap();
        let mut new = NewIntent {
            amount: 100,
            currency: "usd".into(),
            payment_method: Some("pm_card_visa".into()),
            description: None,
            metadata: BTreeMap::new(),
        };
        let first = ledger.open_intent(&user, &new, "processing", &key("one")).await.unwrap();
        let again = ledger.open_intent(&user, &new, "processing", &key("one")).await.unwrap();
        assert_eq!(first.id, again.id);
        new.amount = 200;
        assert!(ledger.open_intent(&user, &new, "processing", &key("one")).await.is_err());

        let refund =
            async |amount, label| ledger.open_refund(&user, &first.id, amount, &key(label)).await;
        assert!(refund(None, "unpaid").await.is_err());
        ledger.settle_intent(&first.id, Some("ch_1")).await.unwrap();
        let part = refund(Some(60), "part").await.unwrap();
        assert_eq!(refund(Some(60), "part").await.unwrap().0, part.0);
        assert!(refund(Some(41), "too much").await.is_err());
        assert_eq!(refund(None, "rest").await.unwrap().1.amount, 40);
        assert!(refund(None, "nothing left").await.is_err());
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", file.display()));
        }
    }
}
