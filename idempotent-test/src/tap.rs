//! A fake of another service that counts the calls it gets.

use std::{
    collections::HashSet,
    net::TcpListener,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use actix_web::{
    App, HttpRequest, HttpResponse, HttpServer,
    dev::ServerHandle,
    http::{Method, header::HeaderMap},
    rt::System,
    web::{self, Bytes},
};

/// A request that another service has received.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TappedRequest {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub target: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A fake of another service, such as a bank, on a port of its own. It counts its calls, and those
/// of which it has seen the `Idempotency-Key` before once, as a service does that honours keys.
///
/// The service stops when the tap is dropped.
#[derive(Debug)]
pub struct HttpTap {
    url: String,
    calls: Arc<Mutex<Calls>>,
    server: ServerHandle,
}

#[derive(Debug, Default)]
struct Calls {
    all: u64,
    effects: u64,
    keys: HashSet<Vec<u8>>,
}

impl HttpTap {
    /// Starts a service that responds to each request by this function, on its own thread.
    ///
    /// # Panics
    /// Panics if no port can be bound or no thread can be started.
    pub fn start(
        respond: impl Fn(&TappedRequest) -> HttpResponse + Clone + Send + 'static,
    ) -> Self {
        let listener = match TcpListener::bind(("127.0.0.1", 0)) {
            Ok(listener) => listener,
            Err(error) => panic!("no port can be bound: {error}"),
        };
        let url = match listener.local_addr() {
            Ok(address) => format!("http://{address}"),
            Err(error) => panic!("the port is not known: {error}"),
        };
        let calls = Arc::new(Mutex::new(Calls::default()));
        let counted = calls.clone();
        let (send, started) = mpsc::channel();
        let serve = move || {
            System::new().block_on(async move {
                let app = move || {
                    let (respond, counted) = (respond.clone(), counted.clone());
                    let service = move |request: HttpRequest, body: Bytes| {
                        let tapped = TappedRequest {
                            method: request.method().clone(),
                            target: request.uri().to_string(),
                            headers: request.headers().clone(),
                            body,
                        };
                        count(&counted, &tapped);
                        let response = respond(&tapped);
                        async move { response }
                    };
                    App::new().default_service(web::to(service))
                };
                let server = HttpServer::new(app).workers(1).disable_signals().listen(listener);
                let Ok(server) = server.map(HttpServer::run) else { return };
                // The other end waits for it.
                let _ = send.send(server.handle());
                // An error of the server is seen by its clients.
                let _ = server.await;
            });
        };
        if let Err(error) = thread::Builder::new().name("http-tap".into()).spawn(serve) {
            panic!("no thread can be started: {error}");
        }
        match started.recv() {
            Ok(server) => Self { url, calls, server },
            Err(_) => panic!("the service cannot be started"),
        }
    }

    /// Returns the address, such as `http://127.0.0.1:4711`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns how many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// Returns how many calls had an effect: those without a key, and the first with each key.
    #[must_use]
    pub fn effects(&self) -> u64 {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).effects
    }

    /// Returns a function for [`Proof::observing`](crate::Proof::observing) that counts the effects
    /// under this name.
    pub fn counted(
        &self,
        name: &'static str,
    ) -> impl AsyncFn() -> [(&'static str, u64); 1] + 'static {
        let calls = self.calls.clone();
        async move || {
            let effects = calls.lock().unwrap_or_else(PoisonError::into_inner).effects;
            [(name, effects)]
        }
    }
}

impl Drop for HttpTap {
    fn drop(&mut self) {
        // The future only tells when the server has stopped.
        drop(self.server.stop(false));
    }
}

fn count(calls: &Mutex<Calls>, request: &TappedRequest) {
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    calls.all += 1;
    let key = request.headers.get("idempotency-key").map(|key| key.as_bytes().to_vec());
    let is_new = key.is_none_or(|key| calls.keys.insert(key));
    calls.effects += u64::from(is_new);
}
