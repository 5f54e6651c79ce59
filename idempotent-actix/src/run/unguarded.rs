//! A run without a key, and what becomes of transactions that are not committed.

use std::{panic::AssertUnwindSafe, time::Duration};

use actix_web::{HttpRequest, HttpResponse};
use futures_util::FutureExt;
use idempotent_core::{StoreError, store::Transaction};

use super::{Work, fails, ran};
use crate::{
    account::Account,
    idempotency::Idempotency,
    outcome::Outcome,
    problem::{self, Kind},
};

/// Runs a handler without a key, or without a store. A panic is answered as in a guarded run.
pub(super) async fn unguarded(idempotency: &Idempotency, request: &HttpRequest, work: Work) -> HttpResponse {
    let account = Account::of(request);
    if let Some(account) = &account {
        match idempotency.runtime().transaction().await {
            Ok(transaction) => account.lend(Some(transaction)),
            Err(error) => return no_transaction(idempotency, request, &error),
        }
    }
    let answer = AssertUnwindSafe(work).catch_unwind().await;
    let committed = match account.map(|account| account.close()) {
        None => Ok(()),
        Some(transaction) => finish(transaction, answer.as_ref().is_ok_and(|response| !fails(response))).await,
    };
    match (answer, committed) {
        (Ok(response), Ok(())) => ran(response),
        (Ok(_), Err(transient)) => not_committed(idempotency, request, transient),
        (Err(_), _) => {
            let problem =
                idempotency.problem(Kind::HandlerFailed, "part of the operation may have been done").not_retryable();
            idempotency.render(&problem, Outcome::Panicked, request)
        }
    }
}

/// Ends the transaction of a request without a key; an error says whether it may go well next time.
async fn finish(transaction: Option<Box<dyn Transaction>>, commit: bool) -> Result<(), bool> {
    match transaction {
        Some(transaction) if commit => transaction.commit().await.map_err(|error| {
            let cause = std::error::Error::source(&error);
            tracing::error!(%error, cause, "a transaction was not committed; its answer is not sent");
            error.is_transient()
        }),
        Some(transaction) => {
            transaction.roll_back().await;
            Ok(())
        }
        None => {
            tracing::error!("a handler has answered and kept its transaction; its `Tx` is to be dropped before");
            Err(false)
        }
    }
}

/// What a client gets where no transaction could be begun.
pub(super) fn no_transaction(idempotency: &Idempotency, request: &HttpRequest, error: &StoreError) -> HttpResponse {
    let cause = std::error::Error::source(error);
    tracing::error!(%error, cause, "a request was refused");
    let kind = problem::kind_of(error);
    unavailable(idempotency, request, kind, kind.advice())
}

/// What a client gets whose answer would tell of effects that are not there. The same request may be sent again.
pub(super) fn not_committed(idempotency: &Idempotency, request: &HttpRequest, transient: bool) -> HttpResponse {
    if transient {
        return unavailable(
            idempotency,
            request,
            Kind::StoreUnavailable,
            "the operation may have been done; send the request again with the same key",
        );
    }
    let problem = idempotency.problem(Kind::HandlerFailed, Kind::HandlerFailed.advice());
    idempotency.render(&problem, Outcome::Panicked, request)
}

fn unavailable(idempotency: &Idempotency, request: &HttpRequest, kind: Kind, detail: &str) -> HttpResponse {
    let mut problem = idempotency.problem(kind, detail);
    if kind.retryable() {
        problem = problem.retry_after(problem::retry_after(Duration::ZERO));
    }
    idempotency.render(&problem, Outcome::Unavailable, request)
}
