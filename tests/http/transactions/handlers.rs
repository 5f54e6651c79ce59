//! Handlers that write one row in their transaction, in the way that the request's body specifies.

use actix_web::{HttpResponse, post, web, web::Data, web::ServiceConfig};
use idempotent_actix::{Disposition, Tx, idempotent, job::TransactionError};
use sqlx::Connection;
use test_support::Probe;

use super::super::handlers::User;

const INSERT: &str = "INSERT INTO effects (note, record, depends_on) VALUES ($1, $2, $3)";

/// A statement that takes longer than any test.
const SLOW_ON_SQLITE: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
    WHERE i < 20000000000) SELECT max(i) FROM n";

macro_rules! handlers {
    ($name:ident, $database:ty, $connection:ty, $slow:expr) => {
        pub(crate) mod $name {
            use super::*;

            type Alias = Tx<$database>;

            #[idempotent(scope = "_user", claim = "transaction")]
            #[post("/claim-transaction")]
            async fn claim_transaction(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user")]
            #[post("/claim-lease")]
            async fn claim_lease(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", claim = "transaction", wait = "15s")]
            #[post("/wait_15s")]
            async fn wait_15s(
                _user: User,
                probe: Data<Probe>,
                (tx, body): (Tx<$database>, String),
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", claim = "transaction", key = "optional")]
            #[post("/optional")]
            async fn optional(
                _user: User,
                probe: Data<Probe>,
                tx: idempotent_actix::Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", abandoned = "hold")]
            #[post("/held")]
            async fn held(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", record = "all")]
            #[post("/record_all")]
            async fn record_all(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", timeout = "1s")]
            #[post("/timeout/claim-lease")]
            async fn timeout_claim_lease(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user", claim = "transaction", timeout = "1s")]
            #[post("/timeout/claim-transaction")]
            async fn timeout_claim_transaction(
                _user: User,
                probe: Data<Probe>,
                tx: Tx<$database>,
                body: String,
            ) -> HttpResponse {
                work(tx, &probe, &body).await
            }

            #[idempotent(scope = "_user")]
            #[post("/two-transactions")]
            async fn two_transactions(
                _user: User,
                probe: Data<Probe>,
                _one: Alias,
                _other: Alias,
            ) -> HttpResponse {
                probe.run().await
            }

            async fn unannotated(_tx: Alias, probe: Data<Probe>) -> HttpResponse {
                probe.run().await
            }

            async fn insert(
                connection: &mut $connection,
                note: &str,
                record: Option<&[u8]>,
                depends_on: Option<&str>,
            ) {
                let insert = sqlx::query(INSERT).bind(note).bind(record).bind(depends_on);
                insert.execute(connection).await.unwrap();
            }

            /// Uses the transaction after the response.
            async fn use_later(mut tx: Tx<$database>, probe: Probe) {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                let used = tx.connection().await;
                if used.is_err_and(|error| matches!(error.cause(), TransactionError::Ended)) {
                    probe.note("it has no connection any more");
                }
            }

            async fn work(mut tx: Tx<$database>, probe: &Probe, body: &str) -> HttpResponse {
                let note = format!("{body} {}", probe.runs());
                let record = tx.record_id().map(|id| id.as_bytes().to_vec());
                let record = record.as_deref();
                match body {
                    "nothing" => {}
                    "dangling" => {
                        insert(tx.connection().await.unwrap(), &note, record, Some("a missing row"))
                            .await
                    }
                    "savepoint" => {
                        let mut savepoint = tx.connection().await.unwrap().begin().await.unwrap();
                        insert(&mut savepoint, "undone", record, None).await;
                        savepoint.rollback().await.unwrap();
                        let mut savepoint = tx.connection().await.unwrap().begin().await.unwrap();
                        insert(&mut savepoint, &note, record, None).await;
                        savepoint.commit().await.unwrap();
                    }
                    "open savepoint" => {
                        let mut savepoint = tx.connection().await.unwrap().begin().await.unwrap();
                        insert(&mut savepoint, &note, record, None).await;
                        std::mem::forget(savepoint);
                    }
                    "failed statement" => {
                        insert(tx.connection().await.unwrap(), &note, record, None).await;
                        sqlx::query("SELECT nonsense")
                            .execute(tx.connection().await.unwrap())
                            .await
                            .unwrap_err();
                    }
                    "rolled back" => {
                        insert(tx.connection().await.unwrap(), &note, record, None).await;
                        let roll_back = sqlx::query(
                            "INSERT OR ROLLBACK INTO effects (note) SELECT note FROM effects",
                        );
                        roll_back.execute(tx.connection().await.unwrap()).await.unwrap_err();
                        // The handler ignores the error and continues.
                        let after = sqlx::query("INSERT INTO effects (note) VALUES ('after')");
                        drop(after.execute(tx.connection().await.unwrap()).await);
                    }
                    "lost connection" => {
                        insert(tx.connection().await.unwrap(), &note, record, None).await;
                        let end = sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())");
                        end.execute(tx.connection().await.unwrap()).await.unwrap_err();
                    }
                    // The handler calls another service before it uses its transaction.
                    "late" => {
                        let response = probe.run().await;
                        match tx.connection().await {
                            Ok(connection) => insert(connection, &note, record, None).await,
                            Err(error) => return HttpResponse::from_error(error),
                        }
                        return response;
                    }
                    "slow statement" if probe.runs() == 0 => {
                        insert(tx.connection().await.unwrap(), &note, record, None).await;
                        let response = probe.run().await;
                        drop(sqlx::query($slow).execute(tx.connection().await.unwrap()).await);
                        return response;
                    }
                    _ => insert(tx.connection().await.unwrap(), &note, record, None).await,
                }
                let response = probe.run().await;
                match body {
                    "panic" => panic!("the handler panics as requested"),
                    "kept" => {
                        actix_web::rt::spawn(use_later(tx, probe.clone()));
                    }
                    "retryable" => return response.with(Disposition::Retryable),
                    "unknown" => return response.with(Disposition::Unknown),
                    _ => {}
                }
                response
            }

            pub(crate) fn all(config: &mut ServiceConfig) {
                config
                    .service(claim_transaction)
                    .service(claim_lease)
                    .service(wait_15s)
                    .service(optional)
                    .service(held);
                config
                    .service(record_all)
                    .service(timeout_claim_lease)
                    .service(timeout_claim_transaction)
                    .service(two_transactions)
                    .route("/unannotated", web::post().to(unannotated));
            }
        }
    };
}

/// Adds a disposition to a response.
trait With {
    fn with(self, disposition: Disposition) -> Self;
}

impl With for HttpResponse {
    fn with(mut self, disposition: Disposition) -> Self {
        self.extensions_mut().insert(disposition);
        self
    }
}

handlers!(sqlite, sqlx::Sqlite, sqlx::SqliteConnection, SLOW_ON_SQLITE);
handlers!(postgres, sqlx::Postgres, sqlx::PgConnection, "SELECT pg_sleep(600)");
