//! What processes send, what handlers run, and what clients get.

use actix_web::http::{StatusCode, header::LOCATION};
use bytes::Bytes;
use idempotent_core::RecordId;

use super::{Oracle, read};
use crate::operation::{Handler, Key, Receipt, Response, Run};

impl Oracle {
    /// A process sends a completion.
    pub(crate) fn completion_sent(&mut self, recording: &Bytes) {
        if let Some(receipt) = read(recording) {
            self.completing.insert(receipt.run);
        }
    }

    /// A process knows the outcome of a completion.
    pub(crate) fn completion_acknowledged(&mut self, recording: &Bytes) {
        if let Some(receipt) = read(recording) {
            self.completing.remove(&receipt.run);
        }
    }

    /// A handler begins to run.
    pub(crate) fn started(&mut self, run: Run, id: &RecordId, attempt: u32) {
        self.counts.runs += 1;
        self.runs.insert(run.id, run);
        let tracked = self.records.entry(*id).or_default();
        tracked.runs += 1;
        tracked.attempts.insert(attempt);
        let (runs, grants) = (tracked.runs, tracked.grants);
        self.verify(runs <= grants, || {
            format!("I1: {run:?} is run {runs} of a key that was granted {grants} times")
        });
    }

    /// At the end of a history: no response that was sent is missing in the store, unless its
    /// process has died.
    pub(crate) fn verify_deferred(&mut self) {
        let stored = |run: &u64| self.completed.contains(run) || self.fenced.contains(run);
        let dead =
            |run: &u64| self.runs.get(run).is_none_or(|run| self.health.is_dead(run.process));
        let missing: Vec<_> =
            self.deferred.iter().filter(|run| !stored(run) && !dead(run)).copied().collect();
        self.verify(missing.is_empty(), || {
            format!("the responses of the runs {missing:?} were sent, but never stored")
        });
    }

    /// A client sends a request.
    pub(crate) fn requested(&mut self, key: Key, payload: u8) {
        self.sent.entry(key).or_default().insert(payload);
    }

    /// A client got a response to a request with this key and payload.
    pub(crate) fn responded(&mut self, key: Key, payload: u8, response: &Response, calm: bool) {
        self.counts.responses += 1;
        let status = response.status;
        if response.headers.contains_key("idempotency-replayed") {
            self.counts.replays += 1;
        }
        let body = String::from_utf8_lossy(&response.body);
        match status {
            StatusCode::CREATED | StatusCode::PAYMENT_REQUIRED => {
                let location = response.headers.get(LOCATION).and_then(|it| it.to_str().ok());
                match location.and_then(Receipt::parse) {
                    Some(receipt) => self.received(key, payload, receipt),
                    None => self.violated(format!("{key:?}: {status} without a receipt")),
                }
                // The replay of a stream that took too long has no body.
                let complete = location.is_some_and(|it| body == it) || body.is_empty();
                self.verify(complete, || format!("{key:?}: {location:?} with the body {body}"));
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                let others = self.sent.get(&key).is_some_and(|sent| sent.len() > 1);
                self.verify(others, || format!("I7: 422 for a key with one payload: {key:?}"));
            }
            StatusCode::CONFLICT => {}
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::SERVICE_UNAVAILABLE => {
                self.verify(!calm, || format!("{key:?}: {status} without faults: {body}"));
            }
            _ => self.violated(format!("{key:?}: unexpected {status}: {body}")),
        }
    }

    fn received(&mut self, key: Key, payload: u8, receipt: Receipt) {
        let Receipt { run, done, .. } = receipt;
        if run == 0 {
            return;
        }
        self.verify((receipt.user, receipt.key) == (key.user, key.key), || {
            format!("I7: {key:?} got {receipt:?}")
        });
        self.verify(receipt.payload == payload, || {
            format!("I5: {key:?} with payload {payload} got {receipt:?}")
        });
        let (completed, effect) = (self.completed.contains(&run), self.effects.contains(&run));
        match key.handler {
            Handler::Lease => {
                let deferred = !completed && self.completing.contains(&run);
                if deferred {
                    self.deferred.insert(run);
                    self.counts.deferred += 1;
                }
                self.verify(completed || deferred, || {
                    format!("{receipt:?} was sent, but its completion was not")
                });
            }
            Handler::TxLease | Handler::TxClaim => {
                self.verify(effect == done, || format!("I4: {receipt:?} was sent, {effect}"));
            }
        }
    }
}
