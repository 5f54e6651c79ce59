//! The fixture of most HTTP tests.

use std::time::Duration;

use actix_web::{
    App,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{
    Idempotency, IdempotencyBuilder, Key, RecordId,
    scope::ScopeId,
    store::{Snapshot, Store},
};
use idempotent_core::clock::{ManualClock, Timestamp};

use crate::{FaultyStore, Probe, Server, log, wait_for};

/// A store on a manual clock, a probe for the handlers, and the application's handle.
#[derive(Clone, Debug)]
pub struct TestApp {
    /// The clock of the store.
    pub clock: ManualClock,
    /// The store.
    pub store: FaultyStore,
    /// Counts and pauses the runs of handlers.
    pub probe: Probe,
    /// The application's handle.
    pub idempotency: Idempotency,
}

impl TestApp {
    /// An application with default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Probe::new(), |builder| builder)
    }

    /// An application whose probe returns these responses: see [`Probe::responding`].
    #[must_use]
    pub fn responding(
        response: impl Fn(usize) -> actix_web::HttpResponse + Send + Sync + 'static,
    ) -> Self {
        Self::with(Probe::responding(response), |builder| builder)
    }

    /// An application with these settings.
    #[must_use]
    pub fn set(settings: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder) -> Self {
        Self::with(Probe::new(), settings)
    }

    /// An application with this probe and these settings.
    #[must_use]
    pub fn with(
        probe: Probe,
        settings: impl FnOnce(IdempotencyBuilder) -> IdempotencyBuilder,
    ) -> Self {
        log::capture();
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let store = FaultyStore::new(clock.clone());
        let idempotency = settings(Idempotency::builder(store.clone())).build();
        Self { clock, store, probe, idempotency }
    }

    /// Adds the application's handle and the probe to an actix app.
    pub fn setup(&self) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
        let (idempotency, probe) = (self.idempotency.clone(), self.probe.clone());
        move |config| {
            config.app_data(idempotency.clone()).app_data(Data::new(probe.clone()));
        }
    }

    /// Starts a server with these services.
    #[must_use]
    pub fn serve(&self, services: impl Fn(&mut ServiceConfig) + Clone + Send + 'static) -> Server {
        let setup = self.setup();
        Server::start(move || App::new().configure(&setup).configure(&services))
    }

    /// Moves the store's clock forward.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// The record of a user's key, as stored.
    #[must_use]
    pub fn record(&self, user: &str, operation: &str, key: &str) -> Option<Snapshot> {
        let id = Self::id(user, operation, key);
        wait_for("the record", self.store.look_up(&id)).unwrap()
    }

    /// The id of the record of a user's key.
    #[must_use]
    pub fn id(user: &str, operation: &str, key: &str) -> RecordId {
        RecordId::new("tests", &ScopeId::of("user", user), operation, &Key::from_text(key).unwrap())
    }
}

impl Default for TestApp {
    fn default() -> Self {
        Self::new()
    }
}
