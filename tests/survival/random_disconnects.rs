//! Thousands of clients that disconnect at random moments, on a store whose calls are blocked at
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
/// Handlers and clients both take up to this long, so that a client disconnects at any moment of
/// its operation.
const MOMENT_MICROS: u64 = 1_500;

/// What the server has observed.
#[derive(Default)]
struct Journal {
    /// Keys of the requests that the server has read.
    arrived: Mutex<HashSet<String>>,
    begun: Mutex<HashMap<String, usize>>,
    ended: Mutex<HashMap<String, usize>>,
    /// The number of requests whose future was dropped before it completed.
    dropped: AtomicUsize,
}

/// Counts a request as dropped, unless [`done`](Self::done) is called.
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

/// Sends a request and disconnects: in one of five cases without waiting until the server has read
/// the request, and in four of five cases with a reset, which the server notices at once.
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

/// Blocks and unblocks claims and completions in turn, until `over`.
fn block_calls_at_random(store: &FaultyStore, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        for op in [Some(Op::Claim), None, Some(Op::Complete), None] {
            store.block(op);
            thread::sleep(moment());
        }
    }
    store.block(None);
}

#[test]
fn each_handler_that_began_ends_once_and_its_response_is_replayed() {
    let (journal, store) = (
        Arc::<Journal>::default(),
        FaultyStore::new(ManualClock::at(Timestamp::from_millis(1_000_000))),
    );
    let server = serve(&journal, &store);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| block_calls_at_random(&store, &over));
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
    assert!(dropped > DISCONNECTS / 20, "too few futures were dropped: {dropped}");

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
                        "{key} ran before, but was not replayed"
                    );
                }
            });
        }
    });
    for entries in [&journal.begun, &journal.ended] {
        let entries = entries.lock().unwrap();
        assert_eq!(entries.len(), DISCONNECTS);
        let again = entries.iter().find(|(_, times)| **times != 1);
        assert_eq!(again, None, "a handler ran twice");
    }
}
