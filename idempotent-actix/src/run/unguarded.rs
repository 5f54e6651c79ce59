//! A run without a key, and what becomes of transactions that are not committed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use actix_web::{HttpRequest, HttpResponse, rt};
use futures_util::FutureExt;
use idempotent_core::{StoreError, store::Transaction};

use super::{
    Work,
    attempt::{fails, ran},
};
use crate::{
    account::Account,
    idempotency::Idempotency,
    outcome::RequestOutcome,
    problem::{self, ProblemKind},
};

/// Runs a handler without a key, or without a store. A panic is answered as in a guarded run.
pub(super) async fn unguarded(
    idempotency: &Idempotency,
    request: &HttpRequest,
    work: Work,
    time_limit: Option<Duration>,
) -> HttpResponse {
    let account = Account::of(request);
    if let Some(account) = &account {
        match idempotency.runtime().transaction().await {
            Ok(transaction) => account.lend(Some(transaction)),
            Err(error) => return no_transaction(idempotency, request, &error),
        }
    }
    let answer = within(time_limit, AssertUnwindSafe(work).catch_unwind()).await;
    let committed = match account.map(|account| account.close()) {
        None => Ok(()),
        Some(transaction) => {
            let done = matches!(&answer, Some(Ok(response)) if !fails(response));
            finish(transaction, done).await
        }
    };
    match (answer, committed) {
        (Some(Ok(response)), Ok(())) => ran(response),
        (Some(Ok(_)), Err(transient)) => not_committed(idempotency, request, transient),
        (Some(Err(_)), _) => broke_off(idempotency, request, ProblemKind::HandlerFailed, RequestOutcome::HandlerFailed),
        (None, _) => broke_off(idempotency, request, ProblemKind::HandlerTimedOut, RequestOutcome::HandlerTimedOut),
    }
}

fn broke_off(
    idempotency: &Idempotency,
    request: &HttpRequest,
    kind: ProblemKind,
    outcome: RequestOutcome,
) -> HttpResponse {
    let problem = idempotency.problem(kind, "part of the operation may have been done").not_retryable();
    idempotency.render(&problem, outcome, request)
}

/// The output of `work`, unless the time is over before. Then `work` is dropped, and a panic of its destructors is caught.
pub(super) async fn within<T>(time_limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    let Some(limit) = time_limit else { return Some(work.await) };
    // Boxed: keeps the future of operations without a time limit small.
    let limited = Box::pin(async move {
        let mut work = Box::pin(work);
        let output = rt::time::timeout(limit, work.as_mut()).await.ok();
        if output.is_none() && catch_unwind(AssertUnwindSafe(|| drop(work))).is_err() {
            tracing::error!("a destructor panicked while a handler whose time was over was dropped");
        }
        output
    });
    limited.await
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
            ProblemKind::StoreUnavailable,
            "the operation may have been done; send the request again with the same key",
        );
    }
    let problem = idempotency.problem(ProblemKind::HandlerFailed, ProblemKind::HandlerFailed.advice());
    idempotency.render(&problem, RequestOutcome::HandlerFailed, request)
}

fn unavailable(idempotency: &Idempotency, request: &HttpRequest, kind: ProblemKind, detail: &str) -> HttpResponse {
    let mut problem = idempotency.problem(kind, detail);
    if kind.retryable() {
        problem = problem.retry_after(problem::retry_after(Duration::ZERO));
    }
    idempotency.render(&problem, RequestOutcome::Unavailable, request)
}
