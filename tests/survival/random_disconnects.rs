//! Thousands of clients that disconnect at random moments, over a store whose calls are held up at
//! random.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use actix_web::{App, HttpResponse, dev::Service, post, rt::time::sleep, web::Data};
use idempotent_actix::{Idempotency, idempotent, scope};
use idempotent_core::clock::{ManualClock, Timestamp};
use test_support::{FaultyStore, Op, Request, Server};

const CLIENTS: usize = 8;
const DISCONNECTS: usize = 8_000;
/// Handlers and clients both take up to this long, so that a client leaves at any moment of its
/// operation.
const MOMENT_MICROS: u64 = 1_500;

/// Which handlers began, and which of them ended.
#[derive(Default)]
struct Journal {
    /// Keys of the requests that the server has read.
    arrived: Mutex<HashSet<String>>,
    begun: Mutex<HashMap<String, usize>>,
    ended: Mutex<HashMap<String, usize>>,
    /// Requests whose future was dropped before it was done.
    dropped: AtomicUsize,
}

/// Counts as a request whose future was dropped, unless it is done.
struct DropWatch(Option<Arc<Journal>>);

impl DropWatch {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for DropWatch {
    fn drop(&mut self) {
        if let Some(journal) = &self.0 {
            journal.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn count(entries: &Mutex<HashMap<String, usize>>, key: &str) {
    *entries.lock().unwrap().entry(key.to_owned()).or_default() += 1;
}

fn moment() -> Duration {
    Duration::from_micros(fastrand::u64(0..MOMENT_MICROS))
}

#[idempotent(scope = "scope::global", wait = "20s")]
#[post("/random")]
async fn work(journal: Data<Arc<Journal>>, key: String) -> HttpResponse {
    count(&journal.begun, &key);
    sleep(moment()).await;
    count(&journal.ended, &key);
    HttpResponse::Created().body(key)
}

fn request(key: &str) -> Request {
    Request::post("/random").key(key).body(key)
}

fn serve(journal: &Arc<Journal>, store: &FaultyStore) -> Server {
    let (idempotency, journal) = (Idempotency::new(store.clone()), journal.clone());
    Server::with_workers(2, move || {
        let (watched, data) = (journal.clone(), Data::new(journal.clone()));
        App::new().app_data(idempotency.clone()).app_data(data).service(work).wrap_fn(
            move |request, service| {
                let key = request
                    .headers()
                    .get("idempotency-key")
                    .map(|key| key.to_str().unwrap().to_owned());
                watched.arrived.lock().unwrap().extend(key);
                let (watch, response) = (DropWatch(Some(watched.clone())), service.call(request));
                async move {
                    let response = response.await;
                    watch.done();
                    response
                }
            },
        )
    })
}

/// Sends a request and leaves a moment after the server has read it, or one time in five at once;
/// four times in five with a reset, which the server notices at once.
fn disconnect(server: &Server, journal: &Journal, key: &str) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(&request(key).bytes()).unwrap();
    let waits = fastrand::u8(0..5) > 0;
    while waits && !journal.arrived.lock().unwrap().remove(key) {
        thread::sleep(Duration::from_micros(50));
    }
    thread::sleep(moment());
    if fastrand::u8(0..5) > 0 {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Holds up claims and completions, one kind after the other, until `over`.
fn hold_up(store: &FaultyStore, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        for op in [Some(Op::Claim), None, Some(Op::Complete), None] {
            store.block(op);
            thread::sleep(moment());
        }
    }
    store.block(None);
}

#[test]
fn each_handler_that_began_ends_once_and_is_recorded() {
    let (journal, store) = (
        Arc::<Journal>::default(),
        FaultyStore::new(ManualClock::at(Timestamp::from_millis(1_000_000))),
    );
    let server = serve(&journal, &store);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| hold_up(&store, &over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (server, journal) = (&server, &journal);
                threads.spawn(move || {
                    (0..DISCONNECTS / CLIENTS)
                        .for_each(|n| disconnect(server, journal, &format!("{client}-{n}")));
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        over.store(true, Ordering::SeqCst);
    });
    let begun = journal.begun.lock().unwrap().clone();
    let dropped = journal.dropped.load(Ordering::SeqCst);
    println!(
        "{DISCONNECTS} disconnects, {dropped} futures dropped, {} handlers begun",
        begun.len()
    );
    assert!(dropped > DISCONNECTS / 20, "too few operations were cut off: {dropped}");

    thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (server, begun) = (&server, &begun);
            threads.spawn(move || {
                for n in 0..DISCONNECTS / CLIENTS {
                    let key = format!("{client}-{n}");
                    let retry = server.send(&request(&key));
                    assert_eq!((retry.status, retry.text()), (201, key.as_str()), "{retry:?}");
                    assert!(
                        retry.is_replay() || !begun.contains_key(&key),
                        "{key} ran before, and is not replayed"
                    );
                }
            });
        }
    });
    for entries in [&journal.begun, &journal.ended] {
        let entries = entries.lock().unwrap();
        assert_eq!(entries.len(), DISCONNECTS);
        let again = entries.iter().find(|(_, times)| **times != 1);
        assert_eq!(again, None, "no handler runs twice");
    }
}
