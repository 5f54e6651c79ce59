//! Keys in states that only a crash leads to, and assertions on recorded responses.

use actix_web::test::TestRequest;
use idempotent_core::{Abandoned, Lease, Record, RecordId};

use crate::{process::Fault, response::TestResponse, service::TestService};

impl TestService {
    /// Leaves the key of this request in flight, as a process that died between its claim and its
    /// handler. Returns the id of the record.
    ///
    /// # Panics
    /// Panics if the request is refused before it claims its key, or if its handler has `claim =
    /// "transaction"`, which leaves nothing in flight.
    pub async fn leave_in_flight(&self, request: TestRequest) -> RecordId {
        let process = self.process(Some((0, Fault::LosesAcknowledgment))).await;
        process.store.die_after_claim();
        let response = process.call(request.to_request()).await;
        match process.store.claimed().as_slice() {
            [id] if self.record(id).await.is_some() => *id,
            _ => panic!("the request has left no key in flight; it got {}", response.status),
        }
    }

    /// Leaves the key of this request held, as an operation whose outcome is unknown. Returns the
    /// id of the record.
    ///
    /// # Panics
    /// As for [`leave_in_flight`](Self::leave_in_flight), or if the store fails.
    pub async fn leave_held(&self, request: TestRequest) -> RecordId {
        let id = self.leave_in_flight(request).await;
        if let Some(record) = self.record(&id).await {
            let lease = Lease { id, owner: record.owner };
            if let Err(error) = self.store().abandon(&lease, Abandoned::Hold).await {
                panic!("the key cannot be held: {error}");
            }
        }
        id
    }

    /// Reads the record with this id.
    ///
    /// # Panics
    /// Panics if the store fails.
    pub async fn record(&self, id: &RecordId) -> Option<Record> {
        match self.store().look_up(id).await {
            Ok(found) => found.map(|found| found.record),
            Err(error) => panic!("the record cannot be read: {error}"),
        }
    }

    /// Asserts that the response is recorded: a retry gets it again.
    ///
    /// # Panics
    /// Panics if it is not.
    pub async fn assert_recorded(&self, response: &TestResponse) {
        let record = match response.record {
            Some(id) => self.record(&id).await,
            None => None,
        };
        let status = record.as_ref().and_then(|record| record.status);
        assert_eq!(
            status,
            Some(response.status.as_u16()),
            "the response is not recorded; its record is {record:?}"
        );
    }
}
