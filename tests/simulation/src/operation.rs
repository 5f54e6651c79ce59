//! The operations of the simulated application: their keys, runs and responses.

use actix_web::{
    HttpResponse, HttpResponseBuilder,
    http::{
        StatusCode,
        header::{HeaderMap, LOCATION},
    },
};
use bytes::Bytes;

/// Which of the application's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Handler {
    /// Its effects are outside of any transaction.
    Lease,
    /// Its effect is in a transaction, and its claim is not.
    TxLease,
    /// Its effect and its claim are in one transaction.
    TxClaim,
}

/// A key of a user for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) handler: Handler,
    pub(crate) user: u8,
    pub(crate) key: u8,
}

/// One run of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) payload: u8,
    pub(crate) process: usize,
}

/// What every response of a handler states, in its `Location` and in its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    /// The run that made the response; 0 if an operator has.
    pub(crate) run: u64,
    pub(crate) user: u8,
    pub(crate) key: u8,
    pub(crate) payload: u8,
    /// Whether the operation was done.
    pub(crate) done: bool,
}

impl Receipt {
    pub(crate) fn of(run: Run, done: bool) -> Self {
        let Key { user, key, .. } = run.key;
        Self { run: run.id, user, key, payload: run.payload, done }
    }

    pub(crate) fn text(&self) -> String {
        let Self { run, user, key, payload, done } = self;
        format!("/{run}/{user}/{key}/{payload}/{done}")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('/')?.split('/');
        let mut next = || parts.next();
        Some(Self {
            run: next()?.parse().ok()?,
            user: next()?.parse().ok()?,
            key: next()?.parse().ok()?,
            payload: next()?.parse().ok()?,
            done: next()?.parse().ok()?,
        })
    }

    /// Responds with this receipt.
    pub(crate) fn send(&self, response: &mut HttpResponseBuilder) -> HttpResponse {
        response.insert_header((LOCATION, self.text())).body(self.text())
    }
}

/// A response as a client gets it.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}
