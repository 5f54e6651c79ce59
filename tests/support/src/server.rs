//! A real actix server on a free port, in a separate thread.

use std::{fmt, net::SocketAddr, sync::mpsc, thread::JoinHandle, time::Duration};

use actix_web::{
    App, Error, HttpServer,
    body::MessageBody,
    dev::{ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse},
    rt::System,
};

use crate::{
    client::{ClientResponse, Pending, Request},
    log,
};

/// A running server. Dropping it stops the server, even with requests in progress.
pub struct Server {
    address: SocketAddr,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server with one worker.
    pub fn start<F, T, B>(factory: F) -> Self
    where
        F: Fn() -> App<T> + Send + Clone + 'static,
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        Self::with_workers(1, factory)
    }

    /// Starts a server with this many workers.
    ///
    /// # Panics
    /// When no port is available.
    pub fn with_workers<F, T, B>(workers: usize, factory: F) -> Self
    where
        F: Fn() -> App<T> + Send + Clone + 'static,
        T: ServiceFactory<
                ServiceRequest,
                Config = (),
                Response = ServiceResponse<B>,
                Error = Error,
                InitError = (),
            > + 'static,
        B: MessageBody + 'static,
    {
        log::capture();
        let (started, up) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            System::new().block_on(async move {
                let server = HttpServer::new(factory).workers(workers).disable_signals();
                // On a busy machine the head of a request, or the task that updates actix's clock,
                // may be late; by default the server would then respond with 408.
                let server = server.client_request_timeout(Duration::ZERO);
                let server = server.bind(("127.0.0.1", 0)).unwrap();
                let address = *server.addrs().first().unwrap();
                let server = server.run();
                started.send((address, server.handle())).unwrap();
                server.await.unwrap();
            });
        });
        let (address, handle) = up.recv().unwrap();
        Self { address, handle, thread: Some(thread) }
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request on a new connection, and does not wait for its response.
    #[must_use]
    pub fn begin(&self, request: &Request) -> Pending {
        self.begin_raw(&request.bytes())
    }

    /// Sends these bytes on a new connection, and does not wait for the response.
    #[must_use]
    pub fn begin_raw(&self, bytes: &[u8]) -> Pending {
        Pending::send(self.address, bytes)
    }

    /// Sends a request and reads its response.
    #[must_use]
    pub fn send(&self, request: &Request) -> ClientResponse {
        self.begin(request).response()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `stop` sends its command at once; awaiting its future would only wait for the workers.
        drop(self.handle.stop(false));
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server's thread panicked");
        }
    }
}
