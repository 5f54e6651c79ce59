//! A simulated process: the shipped HTTP layer and runtime on a `LocalSet` of their own, which can
//! be paused and dropped.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Poll, Waker},
};

use actix_http::Request;
use actix_web::{App, body::to_bytes, dev::Service, test::init_service, web::Data};
use idempotent_actix::{FinishAfterDisconnect, Idempotency, IdempotencyBuilder, internals};
use tokio::{
    sync::{mpsc, oneshot},
    task::{LocalSet, spawn_local},
};

use crate::{
    app::{self, Site},
    database::Database,
    operation::Response,
    release::Release,
    store::SimulatedStore,
    world::World,
};

/// A request, with where its response goes. Dropping `client` disconnects the client.
struct Call {
    request: Request,
    client: oneshot::Receiver<()>,
    reply: oneshot::Sender<Response>,
}

pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) store: SimulatedStore,
    pub(crate) idempotency: Idempotency,
    calls: mpsc::UnboundedSender<Call>,
    host: Rc<Host>,
    world: Arc<World>,
}

/// What polls the tasks of a process.
struct Host {
    tasks: RefCell<Option<LocalSet>>,
    paused: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Process {
    /// Starts a process of this release.
    pub(crate) fn start(
        world: &Arc<World>,
        database: &Arc<Database>,
        number: usize,
        release: &Release,
    ) -> Rc<Self> {
        world.trace(|| format!("process {number}: starts with {release:?}"));
        let store = SimulatedStore::new(world.clone(), database.clone(), number, release);
        let builder = release.configure(Idempotency::builder(store.clone()));
        let tasks = LocalSet::new();
        let (calls, queue) = mpsc::unbounded_channel();
        let idempotency = internals::simulated(IdempotencyBuilder::namespace(builder, "sim"));
        tasks.spawn_local(serve(
            idempotency.clone(),
            world.clone(),
            number,
            release.finishes,
            queue,
        ));
        let host = Rc::new(Host {
            tasks: RefCell::new(Some(tasks)),
            paused: Cell::new(false),
            waker: RefCell::new(None),
        });
        spawn_local(host.clone().run());
        Rc::new(Self { number, store, idempotency, calls, host, world: world.clone() })
    }

    /// Sends a request. The client is connected until the sender is dropped; the receiver fails if
    /// the process crashes.
    pub(crate) fn call(
        &self,
        request: Request,
    ) -> (oneshot::Sender<()>, oneshot::Receiver<Response>) {
        let ((connected, client), (reply, response)) = (oneshot::channel(), oneshot::channel());
        let _ = self.calls.send(Call { request, client, reply });
        (connected, response)
    }

    pub(crate) fn pause(&self) {
        self.world.trace(|| format!("process {}: paused", self.number));
        self.set_paused(true);
    }

    pub(crate) fn resume(&self) {
        self.world.trace(|| format!("process {}: resumed", self.number));
        self.set_paused(false);
        self.host.wake();
    }

    fn set_paused(&self, paused: bool) {
        if self.host.paused.replace(paused) != paused {
            self.world.oracle(|oracle| oracle.health.set_disturbed(self.number, paused));
        }
    }

    /// Ends the process at once: none of its tasks runs again.
    pub(crate) fn crash(&self) {
        self.world.trace(|| format!("process {}: crashes", self.number));
        self.store.crash();
        let tasks = self.host.tasks.borrow_mut().take();
        drop(tasks);
        self.host.wake();
    }
}

impl Host {
    async fn run(self: Rc<Self>) {
        poll_fn(|cx| {
            self.waker.replace(Some(cx.waker().clone()));
            match &mut *self.tasks.borrow_mut() {
                Some(_) if self.paused.get() => Poll::Pending,
                Some(tasks) => Pin::new(tasks).poll(cx),
                None => Poll::Ready(()),
            }
        })
        .await;
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Serves calls until the process ends.
async fn serve(
    idempotency: Idempotency,
    world: Arc<World>,
    number: usize,
    finishes: bool,
    mut calls: mpsc::UnboundedReceiver<Call>,
) {
    let app = App::new()
        .app_data(idempotency)
        .app_data(Data::new(Site { world, process: number }))
        .configure(app::routes)
        .wrap(actix_web::middleware::Condition::new(finishes, FinishAfterDisconnect));
    let app = Rc::new(init_service(app).await);
    while let Some(Call { request, client, reply }) = calls.recv().await {
        let app = app.clone();
        spawn_local(async move {
            let respond = async {
                let response = app.call(request).await.ok()?;
                let (status, headers) = (response.status(), response.headers().clone());
                let body = to_bytes(response.into_body()).await.ok()?;
                Some(Response { status, headers, body })
            };
            tokio::select! {
                biased;
                _ = client => {}
                response = respond => {
                    if let Some(response) = response {
                        let _ = reply.send(response);
                    }
                }
            }
        });
    }
}
