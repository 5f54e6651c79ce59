use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    ops::Range,
    sync::{Arc, OnceLock},
    thread,
};

use super::*;
use crate::load::{KeyPattern, run};

const STALL: Range<Duration> = Duration::from_millis(200)..Duration::from_millis(500);

/// Starts a server that responds at once, except during the stall after its first request.
fn stalling_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let first = Arc::new(OnceLock::new());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let first = first.clone();
            thread::spawn(move || respond(stream, &first));
        }
    });
    address
}

fn respond(mut stream: TcpStream, first: &OnceLock<Instant>) {
    stream.set_nodelay(true).unwrap();
    let (mut request, mut filled) = ([0; 4096], 0);
    while let Ok(read @ 1..) = stream.read(&mut request[filled..]) {
        filled += read;
        if !request[..filled].ends_with(b"}}") {
            continue;
        }
        filled = 0;
        let since = first.get_or_init(Instant::now).elapsed();
        if STALL.contains(&since) {
            thread::sleep(STALL.end - since);
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok").unwrap();
    }
}

fn load(arrivals: Option<f64>) -> Sample {
    let plan = Plan {
        connections: 4,
        arrivals,
        duration: Duration::from_secs(1),
        ..Plan::new(stalling_server(), KeyPattern::Fresh)
    };
    run(&plan).unwrap()
}

#[test]
fn a_stall_shows_in_the_percentiles_of_the_open_loop_only() {
    let (open, closed) = (load(Some(500.0)), load(None));
    // About 150 of 500 requests arrive during the stall; the closed loop sends 4.
    assert!(open.latency[1] > 150_000.0, "p99 of the open loop: {} µs", open.latency[1]);
    assert!(closed.latency[1] < 100_000.0, "p99 of the closed loop: {} µs", closed.latency[1]);
    assert!(closed.latency[3] > 150_000.0, "the closed loop saw no stall");
}

#[test]
fn all_requests_that_arrive_in_the_measured_time_are_counted() {
    let open = load(Some(300.0));
    let expected = Arrivals::new(300.0, 1).take_while(|at| at.as_secs() < 1).count() as u64;
    assert_eq!(open.statuses, [(201, expected)].into());
    assert_eq!((open.unanswered, open.late), (0, 0.0));
}

#[test]
fn a_request_that_waits_keeps_the_instant_of_its_arrival() {
    let started = Instant::now();
    let end = started + Duration::from_secs(1);
    let mut queue = Queue::new(1000.0, 1, started, end);
    let first = queue.pop(end).unwrap();
    assert_eq!(first, started + Arrivals::new(1000.0, 1).next().unwrap());
    let rest = std::iter::from_fn(|| queue.pop(end)).collect::<Vec<_>>();
    assert!(rest.is_sorted() && (800..1200).contains(&rest.len()), "{} arrivals", rest.len());
    assert!(rest.iter().all(|arrival| *arrival < end) && queue.next_arrival().is_none());
}
