//! The application under test, started as often as a test needs.

use std::{fmt, rc::Rc, sync::Arc, time::Duration};

use actix_http::Request;
use actix_web::{
    App,
    body::{self, MessageBody},
    dev::{Service, ServiceFactory, ServiceRequest, ServiceResponse},
    test::{self, TestRequest},
};
use futures_util::{FutureExt, future::LocalBoxFuture};
use idempotent_actix::{Idempotency, IdempotencyBuilder};
use idempotent_core::{Store, clock::ManualClock, store::memory::MemoryStore};

use crate::{
    process::{Fault, ProcessStore},
    response::TestResponse,
};

/// Responds to requests, in one process of the application.
type Serve = Rc<dyn Fn(Request) -> LocalBoxFuture<'static, TestResponse>>;

/// An application whose guarded handlers are tested.
///
/// The function that creates it is called for each process that a test starts, with the
/// [`Idempotency`] of that process. What all processes share, such as a pool or a fake of another
/// service, is cloned into it.
///
/// Works in `#[actix_web::test]`, in `#[tokio::test]` and in `#[sqlx::test]`.
pub struct TestService {
    start: Box<dyn Fn(Idempotency) -> LocalBoxFuture<'static, Serve>>,
    configure: Box<dyn Fn(IdempotencyBuilder) -> IdempotencyBuilder>,
    store: Arc<dyn Store>,
    clock: Option<ManualClock>,
}

/// One process of the application.
#[derive(Clone)]
pub(crate) struct RunningProcess {
    serve: Serve,
    pub(crate) store: ProcessStore,
}

impl TestService {
    /// Creates an application that keeps its records in memory, on a clock that only
    /// [`pass_time`](Self::pass_time) moves.
    pub fn new<F, T, B>(app: F) -> Self
    where
        F: Fn(Idempotency) -> App<T> + 'static,
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = actix_web::Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        // Any time does that is later than a ttl after the beginning of time.
        let clock = ManualClock::at(idempotent_core::clock::Timestamp::from_millis(1 << 42));
        let mut service = Self::on(MemoryStore::with_clock(clock.clone()), app);
        service.clock = Some(clock);
        service
    }

    /// Creates an application with this store, whose tables exist.
    ///
    /// Use the store that the application uses if its handlers have a `Tx`: the transaction of the
    /// handler is then that of the store.
    pub fn on<F, T, B>(store: impl Store, app: F) -> Self
    where
        F: Fn(Idempotency) -> App<T> + 'static,
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = actix_web::Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        let app = Rc::new(app);
        let start = move |idempotency| {
            let app = app.clone();
            async move {
                let service = Rc::new(test::init_service(app(idempotency)).await);
                let serve: Serve = Rc::new(move |request| {
                    // The service is called when the future is polled, as for a connection.
                    let service = service.clone();
                    async move { respond(service.call(request).await).await }.boxed_local()
                });
                serve
            }
            .boxed_local()
        };
        Self {
            start: Box::new(start),
            configure: Box::new(|builder| builder),
            store: Arc::new(store),
            clock: None,
        }
    }

    /// Configures the [`Idempotency`] of each process, as the application does.
    #[must_use]
    pub fn configured(
        mut self,
        configure: impl Fn(IdempotencyBuilder) -> IdempotencyBuilder + 'static,
    ) -> Self {
        self.configure = Box::new(configure);
        self
    }

    /// Returns the store, without faults.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Moves the clock of the store in memory, such as past a `ttl`.
    ///
    /// # Panics
    /// Panics if the application has a store of its own, whose clock a test cannot move.
    pub fn pass_time(&self, time: Duration) {
        match &self.clock {
            Some(clock) => clock.advance(time),
            None => panic!("only the clock of `TestService::new` can be moved"),
        }
    }

    /// Sends a request to a new process, and waits for the response.
    pub async fn call(&self, request: TestRequest) -> TestResponse {
        self.process(None).await.call(request.to_request()).await
    }

    /// Starts a process, one of whose calls to the store fails if that is ordered.
    pub(crate) async fn process(&self, fault: Option<(usize, Fault)>) -> RunningProcess {
        let store = ProcessStore::new(self.store.clone(), fault);
        let mut builder = (self.configure)(Idempotency::builder(store.clone()).purge_every(None));
        if matches!(fault, Some((_, Fault::Hangs))) {
            builder = builder.store_timeout(HANGING_CALL);
        }
        let serve = (self.start)(builder.build()).await;
        RunningProcess { serve, store }
    }
}

/// The time limit of a call that hangs.
const HANGING_CALL: Duration = Duration::from_millis(200);

impl RunningProcess {
    /// Sends a request. Nothing happens until the future is polled.
    pub(crate) fn call(&self, request: Request) -> LocalBoxFuture<'static, TestResponse> {
        (self.serve)(request)
    }
}

/// Reads a response to its end, as a client does.
async fn respond<B: MessageBody>(
    response: Result<ServiceResponse<B>, actix_web::Error>,
) -> TestResponse {
    match response {
        Ok(response) => {
            let (_, response) = response.into_parts();
            let (head, body) = response.into_parts();
            TestResponse::new(&head, body::to_bytes(body).await.ok())
        }
        Err(error) => {
            let (head, body) = error.error_response().into_parts();
            TestResponse::new(&head, body::to_bytes(body).await.ok())
        }
    }
}

impl fmt::Debug for TestService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestService").field("clock", &self.clock).finish_non_exhaustive()
    }
}
