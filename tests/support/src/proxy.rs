//! A proxy that cuts a connection after a number of bytes.
#![allow(clippy::wildcard_enum_match_arm, reason = "the helpers are parts of tests")]

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// How both sides of a connection are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a FIN, as when a process exits: bytes that were sent are still delivered.
    Fin,
    /// With a reset, as when a machine fails: bytes in transit may be lost.
    Reset,
}

/// What to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub direction: Direction,
    /// How many bytes are forwarded before the cut; 0 cuts when the first one arrives.
    pub after: u64,
    pub cut: Cut,
    /// Whether the server is unreachable afterwards, on all connections.
    pub outage: bool,
}

/// A proxy in front of one server. It forwards connections, as tasks of the runtime that it was
/// started on, until a cut.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Connections with a lower number are closed.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// How many connections there have been.
    connections: u64,
    unreachable: bool,
    /// Only bytes on connections with a lower number are counted: those that were open when the
    /// count began.
    counted_below: u64,
    passed: [u64; 2],
    plan: Option<Plan>,
    cuts: u32,
    /// Connections with a lower number forward nothing, without an error.
    silent_below: u64,
    /// Further connections that forward nothing.
    silent: BTreeSet<u64>,
    /// Whether the next connection on which something arrives becomes silent.
    silence_next: bool,
    /// The latency in each direction.
    delay: Duration,
}

impl Proxy {
    /// Starts a proxy in front of a server.
    pub async fn in_front_of(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { state: Mutex::default(), ended: watch::Sender::new(0) });
        tokio::spawn(accept(listener, (host.to_owned(), port), shared.clone()));
        Self { port: proxy, shared }
    }

    /// Counts the bytes that the open connections carry from now on, and cuts one of these
    /// connections if there is a plan.
    pub fn count(&self, plan: Option<Plan>) {
        let mut state = self.shared.state();
        let (connections, silent_below) = (state.connections, state.silent_below);
        let silent = mem::take(&mut state.silent);
        *state = State {
            connections,
            counted_below: connections,
            plan,
            silent_below,
            silent,
            ..State::default()
        };
    }

    /// How many bytes went to the server, and to the client.
    pub fn counted(&self) -> [u64; 2] {
        self.shared.state().passed
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// How many connections were cut since the count began.
    pub fn cuts(&self) -> u32 {
        self.shared.state().cuts
    }

    /// Discards everything on the open connections, in both directions, like a router that has
    /// forgotten them.
    pub fn silence(&self) {
        let mut state = self.shared.state();
        state.silent_below = state.connections;
    }

    /// Discards everything on one connection from now on: the next one on which something arrives.
    pub fn silence_next(&self) {
        self.shared.state().silence_next = true;
    }

    /// Discards everything on all connections, including new ones, until
    /// [`restore`](Self::restore).
    pub fn silence_all(&self) {
        self.shared.state().silent_below = u64::MAX;
    }

    /// Forwards new connections again. Nothing is forwarded on those that are open now.
    pub fn restore(&self) {
        self.silence();
    }

    /// Adds this latency in each direction from now on, like a distant server.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Makes the server reachable again after a cut with [`Plan::outage`].
    pub fn end_outage(&self) {
        self.shared.state().unreachable = false;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes that were received; returns how many of them to forward, and how to cut the
    /// connection afterwards, if it is to be cut.
    fn pass(&self, number: u64, direction: Direction, bytes: usize) -> (usize, Option<Cut>) {
        let mut state = self.state();
        if number >= state.counted_below {
            return (bytes, None);
        }
        let passed = state.passed[direction as usize];
        let all = passed + bytes as u64;
        match state.plan {
            Some(plan) if plan.direction == direction && all >= plan.after => {
                state.plan = None;
                state.cuts += 1;
                state.passed[direction as usize] = plan.after;
                if plan.outage {
                    state.unreachable = true;
                    self.ended.send_replace(state.connections);
                }
                (usize::try_from(plan.after - passed).unwrap(), Some(plan.cut))
            }
            _ => {
                state.passed[direction as usize] = all;
                (bytes, None)
            }
        }
    }
}

async fn accept(listener: TcpListener, server: (String, u16), shared: Arc<Shared>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let number = {
            let mut state = shared.state();
            if state.unreachable {
                continue; // Dropping the stream closes it.
            }
            state.connections += 1;
            state.connections - 1
        };
        tokio::spawn(forward(client, server.clone(), number, shared.clone()));
    }
}

async fn forward(mut client: TcpStream, server: (String, u16), number: u64, shared: Arc<Shared>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut ended = shared.ended.subscribe();
    let (mut to_server, mut to_client) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let cut = loop {
        let (direction, read) = tokio::select! {
            read = client.read(&mut to_server) => (Direction::ToServer, read.unwrap_or(0)),
            read = server.read(&mut to_client) => (Direction::ToClient, read.unwrap_or(0)),
            _ = ended.wait_for(|ended| *ended > number) => break Cut::Reset,
        };
        if read == 0 {
            return;
        }
        let (silent, delay) = {
            let mut state = shared.state();
            if mem::take(&mut state.silence_next) {
                state.silent.insert(number);
            }
            (number < state.silent_below || state.silent.contains(&number), state.delay)
        };
        if silent {
            continue;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (forwarded, cut) = shared.pass(number, direction, read);
        let written = match direction {
            Direction::ToServer => server.write_all(&to_server[..forwarded]).await,
            Direction::ToClient => client.write_all(&to_client[..forwarded]).await,
        };
        match cut {
            Some(cut) => break cut,
            None if written.is_err() => return,
            None => {}
        }
    };
    for stream in [client, server] {
        tokio::spawn(end(stream, cut));
    }
}

async fn end(mut stream: TcpStream, cut: Cut) {
    match cut {
        Cut::Reset => stream.set_zero_linger().unwrap(),
        Cut::Fin => {
            // A stream that is dropped with unread bytes is reset.
            let _ = stream.shutdown().await;
            let mut sink = tokio::io::sink();
            let rest = tokio::io::copy(&mut stream, &mut sink);
            let _ = tokio::time::timeout(Duration::from_secs(5), rest).await;
        }
    }
}
