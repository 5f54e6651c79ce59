//! The load: keep-alive connections of one process, each with one request in flight.
//!
//! In a closed loop each connection sends its next request after it has received a response. In an
//! [open loop](open_loop) requests arrive at a fixed rate and wait for a free connection.
//!
//! It uses one thread and edge-triggered polling, so a request costs the load one `read` and one
//! `write`, which is less work than any server does for it.

mod arrivals;
mod connection;
mod keys;
mod open_loop;
mod plan;
mod timer;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

use self::{
    connection::{Connection, Response},
    keys::Keys,
    timer::Timer,
};
pub(crate) use self::{
    keys::key,
    plan::{KeyPattern, Plan, Watched},
};
use crate::cpu;

/// How long the load waits for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A request that takes longer is late.
const LATE: Duration = Duration::from_secs(1);

/// The result of one load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Responses within the measured time.
    pub(crate) requests: u64,
    /// The measured time.
    pub(crate) seconds: f64,
    /// Responses by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Responses marked as replays.
    pub(crate) replayed: u64,
    /// Bytes of the responses' bodies.
    pub(crate) body_bytes: u64,
    /// Connections that the server closed, and the load opened again.
    pub(crate) reconnects: u64,
    /// Microseconds from request to response: p50, p99, p99.9 and the maximum. In an open loop
    /// they count from the arrival of the request.
    pub(crate) latency: [f64; 4],
    /// The share of requests that took longer than a second, or got no response.
    pub(crate) late: f64,
    /// Responses of a closed loop before its time was over. The load then waits for the others.
    pub(crate) in_time: u64,
    /// For how long the connections of a closed loop have waited in requests that took longer than
    /// a second, before its time was over.
    pub(crate) late_seconds: f64,
    /// Requests of an open loop without a response.
    pub(crate) unanswered: u64,
    /// Processor time in seconds of the watched processes, by name.
    pub(crate) busy: BTreeMap<String, f64>,
    /// The share of its processor that the load used, from 0 to 1.
    pub(crate) load_share: f64,
}

impl Sample {
    /// Responses per second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Processor time of a watched process per response, in microseconds.
    pub(crate) fn cpu(&self, process: &str) -> f64 {
        self.busy.get(process).copied().unwrap_or(0.0) * 1e6 / self.requests as f64
    }
}

/// Runs the load and prints its sample as JSON.
pub(crate) fn main(plan: &Plan) {
    let sample = run(plan).expect("the load runs to its end");
    println!("{}", serde_json::to_string(&sample).unwrap());
}

fn run(plan: &Plan) -> io::Result<Sample> {
    let mut load = Load::open(plan)?;
    let mut keys = Keys::new(plan.pattern, plan.seed, plan.connections);
    if !plan.seeded {
        let mut left = keys.to_seed();
        load.drive(|| left.next(), &mut Tally::default())?;
    }
    match plan.arrivals {
        Some(rate) => load.open_loop(plan, rate, &mut keys),
        None => load.closed_loop(plan, &mut keys),
    }
}

/// What was measured so far.
#[derive(Default)]
struct Tally {
    sample: Sample,
    latencies: Vec<Duration>,
    /// Responses within the measured time of an open loop.
    in_time: u64,
    /// The measured time of a closed loop.
    until: Option<(Instant, Instant)>,
}

impl Tally {
    fn new() -> Self {
        Self { latencies: Vec::with_capacity(1 << 20), ..Self::default() }
    }

    fn add(&mut self, response: &Response) {
        self.latencies.push(response.latency);
        self.sample.requests += 1;
        self.sample.replayed += u64::from(response.replayed);
        self.sample.body_bytes += response.length as u64;
        *self.sample.statuses.entry(response.status).or_default() += 1;
        let Some((started, until)) = self.until else { return };
        let (began, ended) = (response.started, response.started + response.latency);
        self.sample.in_time += u64::from(ended <= until);
        if response.latency > LATE {
            let waited = ended.min(until).saturating_duration_since(began.max(started));
            self.sample.late_seconds += waited.as_secs_f64();
        }
    }

    /// The sample with the percentiles of its latencies.
    fn finish(mut self) -> Sample {
        let late = self.latencies.iter().filter(|latency| **latency > LATE).count();
        self.sample.late = late as f64 / self.latencies.len().max(1) as f64;
        self.sample.latency = percentiles(&mut self.latencies);
        self.sample
    }
}

/// p50, p99, p99.9 and the maximum, in microseconds.
fn percentiles(latencies: &mut [Duration]) -> [f64; 4] {
    latencies.sort_unstable();
    let last = latencies.len().saturating_sub(1);
    let at = |share: f64| {
        latencies
            .get((last as f64 * share).round() as usize)
            .map_or(0.0, |l| l.as_nanos() as f64 / 1e3)
    };
    [at(0.5), at(0.99), at(0.999), at(1.0)]
}

struct Load {
    poll: Poll,
    timer: Timer,
    busy_poll: bool,
    /// The time spent polling while there was no event.
    idle: Duration,
    connections: Vec<Connection>,
}

impl Load {
    fn open(plan: &Plan) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for number in 0..plan.connections {
            let server = number % plan.to.len();
            let principal = if plan.separate_principals { server } else { 0 };
            let mut connection = Connection::open(plan.to[server], principal)?;
            poll.registry().register(&mut connection.stream, Token(number), Interest::READABLE)?;
            connections.push(connection);
        }
        let timer = Timer::new(poll.registry())?;
        Ok(Self { poll, timer, busy_poll: plan.busy_poll, idle: Duration::ZERO, connections })
    }

    /// Warms up and measures, with each connection busy all the time.
    fn closed_loop(&mut self, plan: &Plan, keys: &mut Keys) -> io::Result<Sample> {
        let warm_until = Instant::now() + plan.warmup;
        let next = || (Instant::now() < warm_until).then(|| keys.next());
        self.drive(next, &mut Tally::default())?;
        let mut tally = Tally::new();
        let (before, started) = (plan.watched.times(), Instant::now());
        let own = cpu::time(std::process::id());
        self.idle = Duration::ZERO;
        let until = started + plan.duration;
        let mut left = plan.requests;
        tally.until = Some((started, until));
        let next = || {
            match &mut left {
                Some(0) => return None,
                Some(left) => *left -= 1,
                None if Instant::now() >= until => return None,
                None => {}
            }
            Some(keys.next())
        };
        self.drive(next, &mut tally)?;
        let sample = &mut tally.sample;
        sample.seconds = started.elapsed().as_secs_f64();
        sample.load_share = self.own_time(own).as_secs_f64() / sample.seconds;
        sample.busy = plan.watched.since(&before);
        Ok(tally.finish())
    }

    /// The processor time of this process since it was `before`, without idle polling.
    fn own_time(&self, before: Duration) -> Duration {
        (cpu::time(std::process::id()) - before).saturating_sub(self.idle)
    }

    /// Sends a request on each connection, and the next one after each response, until there are no
    /// more keys and every request has a response.
    fn drive(
        &mut self,
        mut next: impl FnMut() -> Option<[u8; 36]>,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut busy = 0;
        for connection in &mut self.connections {
            let Some(key) = next() else { break };
            connection.send(&key, Instant::now())?;
            busy += 1;
        }
        while busy > 0 {
            self.wait(&mut events)?;
            for event in &events {
                let Some(response) = self.receive(event.token(), &mut tally.sample)? else {
                    continue;
                };
                tally.add(&response);
                match next() {
                    Some(key) => {
                        self.connections[event.token().0].send(&key, Instant::now())?;
                    }
                    None => busy -= 1,
                }
            }
        }
        Ok(())
    }

    /// The response on a connection, if it is complete. Opens the connection again if the server
    /// has closed it.
    fn receive(&mut self, token: Token, sample: &mut Sample) -> io::Result<Option<Response>> {
        let Some(connection) = self.connections.get_mut(token.0) else { return Ok(None) };
        match connection.receive() {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.poll.registry().deregister(&mut connection.stream)?;
                connection.reopen()?;
                self.poll.registry().register(&mut connection.stream, token, Interest::READABLE)?;
                sample.reconnects += 1;
                connection.send_again()?;
                Ok(None)
            }
            received => received,
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let began = Instant::now();
        let timeout = if self.busy_poll { Duration::ZERO } else { TIMEOUT };
        while began.elapsed() <= TIMEOUT {
            let polled = Instant::now();
            match self.poll.poll(events, Some(timeout)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ if !events.is_empty() => return Ok(()),
                _ if self.busy_poll => self.idle += polled.elapsed(),
                _ => {}
            }
        }
        Err(io::Error::new(ErrorKind::TimedOut, "no response for 20 seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_do_not_depend_on_the_order_of_the_latencies() {
        let mut latencies: Vec<_> = (0..=1000).rev().map(Duration::from_micros).collect();
        assert_eq!(percentiles(&mut latencies), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!(percentiles(&mut []), [0.0; 4]);
    }
}
