//! The open loop: requests arrive at a fixed rate, however fast the server responds.
//!
//! A request that finds all connections busy waits for one. Its latency counts from its arrival, so
//! a stall of the server also delays the requests that arrive meanwhile. A closed loop sends none
//! meanwhile, and counts a stall once per connection.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind},
    iter::Peekable,
    ops::Range,
    time::{Duration, Instant},
};

use mio::{Events, Token};

use super::{Load, Plan, Sample, Tally, arrivals::Arrivals, keys::Keys};
use crate::cpu;

/// How long the load waits for responses after the last arrival.
const PATIENCE: Duration = Duration::from_secs(10);

/// The requests that wait for a connection, and those that arrive later.
struct Queue {
    arrivals: Peekable<Arrivals>,
    started: Instant,
    /// No request arrives after this instant.
    end: Instant,
    waiting: VecDeque<Instant>,
}

impl Queue {
    fn new(rate: f64, seed: u64, started: Instant, end: Instant) -> Self {
        let arrivals = Arrivals::new(rate, seed).peekable();
        Self { arrivals, started, end, waiting: VecDeque::new() }
    }

    /// The next arrival, if there is one before the end.
    fn next_arrival(&mut self) -> Option<Instant> {
        let at = self.started + *self.arrivals.peek()?;
        Some(at).filter(|at| *at < self.end)
    }

    /// The arrival of the next request to send.
    fn pop(&mut self, now: Instant) -> Option<Instant> {
        while let Some(at) = self.next_arrival().filter(|at| *at <= now) {
            self.arrivals.next();
            self.waiting.push_back(at);
        }
        self.waiting.pop_front()
    }
}

impl Load {
    /// Sends requests at this rate, first to warm up and then to measure. The sample contains the
    /// latencies of the requests that arrive in the measured time, and the number of responses in
    /// the measured time.
    pub(super) fn open_loop(
        &mut self,
        plan: &Plan,
        rate: f64,
        keys: &mut Keys,
    ) -> io::Result<Sample> {
        let started = Instant::now();
        let measured_from = started + plan.warmup;
        let end = measured_from + plan.duration;
        let own = cpu::time(std::process::id());
        self.idle = Duration::ZERO;

        let mut queue = Queue::new(rate, plan.seed, started, end);
        let mut tally = Tally::new();
        let mut events = Events::with_capacity(1024);
        let mut free: VecDeque<_> = (0..self.connections.len()).collect();
        loop {
            let began = Instant::now();
            let sent = self.send_arrived(&mut queue, &mut free, keys)?;
            let next = queue.next_arrival();
            let now = Instant::now();
            if (next.is_none() && free.len() == self.connections.len()) || now > end + PATIENCE {
                break;
            }
            // While no connection is free, only a response changes anything.
            let until = next.filter(|_| !free.is_empty()).unwrap_or(end + PATIENCE);
            self.wait_until(until, &mut events)?;
            if self.busy_poll && sent == 0 && events.is_empty() {
                self.idle += began.elapsed();
            }
            for event in &events {
                if self.tally_response(event.token(), &(measured_from..end), &mut tally)? {
                    free.push_back(event.token().0);
                }
            }
        }
        self.add_missing(&mut queue, measured_from, &mut tally);
        let sample = &mut tally.sample;
        (sample.requests, sample.seconds) = (tally.in_time, plan.duration.as_secs_f64());
        sample.load_share = self.own_time(own).as_secs_f64() / started.elapsed().as_secs_f64();
        Ok(tally.finish())
    }

    /// Sends the requests that have arrived, as far as connections are free; returns their number.
    fn send_arrived(
        &mut self,
        queue: &mut Queue,
        free: &mut VecDeque<usize>,
        keys: &mut Keys,
    ) -> io::Result<usize> {
        let mut sent = 0;
        // In turn, so that all connections are used at any rate.
        while let Some(number) = free.front().copied() {
            let Some(arrival) = queue.pop(Instant::now()) else { break };
            free.pop_front();
            self.connections[number].send(&keys.next(), arrival)?;
            sent += 1;
        }
        Ok(sent)
    }

    fn wait_until(&mut self, until: Instant, events: &mut Events) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = if self.busy_poll || left.is_zero() {
            Duration::ZERO
        } else {
            self.timer.start(left)?
        };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Tallies the response on a connection, if it is complete; returns whether it is. Its latency
    /// counts if its request has arrived in the measured time, and its number if it is received in
    /// that time.
    fn tally_response(
        &mut self,
        token: Token,
        measured: &Range<Instant>,
        tally: &mut Tally,
    ) -> io::Result<bool> {
        let Some(response) = self.receive(token, &mut tally.sample)? else { return Ok(false) };
        if response.started >= measured.start {
            tally.add(&response);
        }
        tally.in_time += u64::from(measured.contains(&Instant::now()));
        Ok(true)
    }

    /// Adds the latencies so far of the requests without a response.
    fn add_missing(&mut self, queue: &mut Queue, measured_from: Instant, tally: &mut Tally) {
        let sent = self.connections.iter().filter_map(|connection| connection.started());
        let mut arrivals: Vec<_> = sent.collect();
        let now = Instant::now();
        arrivals.extend(std::iter::from_fn(|| queue.pop(now)));
        arrivals.retain(|arrival| *arrival >= measured_from);
        tally.sample.unanswered = arrivals.len() as u64;
        tally.latencies.extend(arrivals.into_iter().map(|arrival| now - arrival));
    }
}

#[cfg(test)]
mod tests;
