//! The load: keep-alive connections of one process, each with one request under way.
//!
//! One thread and an edge-triggered poll. A request costs it a `read` and a `write`, so that it takes less than any server does.

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

pub(crate) use self::plan::{Plan, Watched, Work};
use self::{connection::Connection, keys::Keys};
use crate::{arguments::Arguments, cpu};

/// How long it waits for any answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a load saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How many answers came within the time that counts.
    pub(crate) requests: u64,
    /// How long that was.
    pub(crate) seconds: f64,
    /// How often each status came.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// How many answers were marked as replays.
    pub(crate) replayed: u64,
    /// How many bytes answers had, without their heads.
    pub(crate) body_bytes: u64,
    /// How often a server closed a connection.
    pub(crate) reconnects: u64,
    /// Microseconds from request to answer: the median, 99 %, 99.9 %, the longest.
    pub(crate) latency: [f64; 4],
    /// Seconds on a processor: the processes that were watched, by name, and the load itself.
    pub(crate) busy: BTreeMap<String, f64>,
    /// How much of its processor the load used, from 0 to 1.
    pub(crate) own_share: f64,
}

impl Seen {
    /// Answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Microseconds of a processor that each answer took of a watched process.
    pub(crate) fn cpu(&self, of: &str) -> f64 {
        self.busy.get(of).copied().unwrap_or(0.0) * 1e6 / self.requests as f64
    }
}

/// Does what its arguments say, and prints what it saw as JSON.
pub(crate) fn main(arguments: &Arguments) {
    let seen = run(&Plan::of(arguments)).expect("the load");
    println!("{}", serde_json::to_string(&seen).unwrap());
}

fn run(plan: &Plan) -> io::Result<Seen> {
    let mut load = Load::open(plan)?;
    let mut keys = Keys::new(plan.work, plan.seed, plan.connections);
    if !plan.seeded {
        let mut left = keys.to_seed();
        load.drive(|| left.next(), &mut Seen::default(), &mut Vec::new())?;
    }
    let warm_until = Instant::now() + plan.warmup;
    load.drive(|| (Instant::now() < warm_until).then(|| keys.next()), &mut Seen::default(), &mut Vec::new())?;

    let (mut seen, mut latencies) = (Seen::default(), Vec::with_capacity(1 << 20));
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
    load.drive(next, &mut seen, &mut latencies)?;
    seen.seconds = started.elapsed().as_secs_f64();
    let own = (cpu::time(std::process::id()) - own).saturating_sub(load.idle);
    seen.own_share = own.as_secs_f64() / seen.seconds;
    seen.busy = plan.watched.since(&before);
    seen.latency = percentiles(&mut latencies);
    Ok(seen)
}

/// The median, 99 %, 99.9 % and the longest, in microseconds.
fn percentiles(latencies: &mut [Duration]) -> [f64; 4] {
    latencies.sort_unstable();
    let last = latencies.len().saturating_sub(1);
    let at =
        |share: f64| latencies.get((last as f64 * share).round() as usize).map_or(0.0, |l| l.as_nanos() as f64 / 1e3);
    [at(0.5), at(0.99), at(0.999), at(1.0)]
}

struct Load {
    poll: Poll,
    awake: bool,
    /// How long it was awake for nothing.
    idle: Duration,
    connections: Vec<Connection>,
}

impl Load {
    fn open(plan: &Plan) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for number in 0..plan.connections {
            let mut connection = Connection::open(plan.to)?;
            poll.registry().register(&mut connection.stream, Token(number), Interest::READABLE)?;
            connections.push(connection);
        }
        Ok(Self { poll, awake: plan.awake, idle: Duration::ZERO, connections })
    }

    /// Sends a request on each connection, and another for each answer, until there is none left and the last is answered.
    fn drive(
        &mut self,
        mut next: impl FnMut() -> Option<[u8; 36]>,
        seen: &mut Seen,
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
                let answer = match connection.receive() {
                    Ok(Some(answer)) => answer,
                    Ok(None) => continue,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                        self.poll.registry().deregister(&mut connection.stream)?;
                        connection.reopen()?;
                        self.poll.registry().register(&mut connection.stream, event.token(), Interest::READABLE)?;
                        seen.reconnects += 1;
                        connection.send_again()?;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                latencies.push(answer.after);
                seen.requests += 1;
                seen.replayed += u64::from(answer.replayed);
                seen.body_bytes += answer.length as u64;
                *seen.statuses.entry(answer.status).or_default() += 1;
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
        let timeout = if self.awake { Duration::ZERO } else { PATIENCE };
        while began.elapsed() <= PATIENCE {
            let asked = Instant::now();
            match self.poll.poll(events, Some(timeout)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ if !events.is_empty() => return Ok(()),
                _ if self.awake => self.idle += asked.elapsed(),
                _ => {}
            }
        }
        Err(io::Error::new(ErrorKind::TimedOut, "no answer for 20 seconds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut latencies: Vec<_> = (0..=1000).rev().map(Duration::from_micros).collect();
        assert_eq!(percentiles(&mut latencies), [500.0, 990.0, 999.0, 1000.0]);
        assert_eq!(percentiles(&mut []), [0.0; 4]);
    }
}
