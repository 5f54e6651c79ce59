//! The load: keep-alive connections of one process, each with one request in flight.
//!
//! It uses one thread and edge-triggered polling, so a request costs the load one `read` and one
//! `write`, which is less work than any server does for it.

mod connection;
mod keys;
mod plan;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

pub(crate) use self::plan::{KeyPattern, Plan, Watched};
use self::{connection::Connection, keys::Keys};
use crate::cpu;

/// How long the load waits for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

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
    /// Microseconds from request to response: p50, p99, p99.9 and the maximum.
    pub(crate) latency: [f64; 4],
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
        load.drive(|| left.next(), &mut Sample::default(), &mut Vec::new())?;
    }
    let warm_until = Instant::now() + plan.warmup;
    load.drive(
        || (Instant::now() < warm_until).then(|| keys.next()),
        &mut Sample::default(),
        &mut Vec::new(),
    )?;

    let (mut sample, mut latencies) = (Sample::default(), Vec::with_capacity(1 << 20));
    let (before, started) = (plan.watched.times(), Instant::now());
    let own = cpu::time(std::process::id());
    load.idle = Duration::ZERO;
    let until = started + plan.duration;
    let mut left = plan.requests;
    let next = || {
        match &mut left {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None if Instant::now() >= until => return None,
            None => {}
        }
        Some(keys.next())
    };
    load.drive(next, &mut sample, &mut latencies)?;
    sample.seconds = started.elapsed().as_secs_f64();
    let own = (cpu::time(std::process::id()) - own).saturating_sub(load.idle);
    sample.load_share = own.as_secs_f64() / sample.seconds;
    sample.busy = plan.watched.since(&before);
    sample.latency = percentiles(&mut latencies);
    Ok(sample)
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
        Ok(Self { poll, busy_poll: plan.busy_poll, idle: Duration::ZERO, connections })
    }

    /// Sends a request on each connection, and the next one after each response, until there are no
    /// more keys and every request has a response.
    fn drive(
        &mut self,
        mut next: impl FnMut() -> Option<[u8; 36]>,
        sample: &mut Sample,
        latencies: &mut Vec<Duration>,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut busy = 0;
        for connection in &mut self.connections {
            let Some(key) = next() else { break };
            connection.send(&key)?;
            busy += 1;
        }
        while busy > 0 {
            self.wait(&mut events)?;
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                let response = match connection.receive() {
                    Ok(Some(response)) => response,
                    Ok(None) => continue,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                        self.poll.registry().deregister(&mut connection.stream)?;
                        connection.reopen()?;
                        self.poll.registry().register(
                            &mut connection.stream,
                            event.token(),
                            Interest::READABLE,
                        )?;
                        sample.reconnects += 1;
                        connection.send_again()?;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                latencies.push(response.after);
                sample.requests += 1;
                sample.replayed += u64::from(response.replayed);
                sample.body_bytes += response.length as u64;
                *sample.statuses.entry(response.status).or_default() += 1;
                match next() {
                    Some(key) => connection.send(&key)?,
                    None => busy -= 1,
                }
            }
        }
        Ok(())
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
