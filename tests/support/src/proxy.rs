//! A proxy that cuts a connection after a number of bytes.
#![allow(clippy::wildcard_enum_match_arm, reason = "the helpers are parts of tests")]

use std::{
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

/// How a connection ends, for both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In order, as when a process exits: bytes that were sent are still delivered.
    Fin,
    /// At once, as when a machine fails: bytes in transit may be lost.
    Reset,
}

/// What to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub direction: Direction,
    /// This many bytes still pass; 0 cuts when the first one arrives.
    pub after: u64,
    pub cut: Cut,
    /// Whether the server is unreachable afterwards, on all connections.
    pub outage: bool,
}

/// A proxy in front of one server. It forwards connections until a cut, on the runtime that it was
/// started on.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Connections with a lower number end.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// How many connections there have been.
    connections: u64,
    out_of_reach: bool,
    /// Only bytes on connections that were open when the count began are counted.
    counted_below: u64,
    passed: [u64; 2],
    plan: Option<Plan>,
    cuts: u32,
    /// Connections with a lower number forward nothing, without an error.
    silent_below: u64,
    /// The latency in each direction.
    delay: Duration,
}

impl Proxy {
    /// Starts a proxy.
    pub async fn before(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { state: Mutex::default(), ended: watch::Sender::new(0) });
        tokio::spawn(accept(listener, (host.to_owned(), port), shared.clone()));
        Self { port: proxy, shared }
    }

    /// Counts the bytes that pass from now on over the open connections, and cuts one of them if
    /// there is a plan.
    pub fn count(&self, plan: Option<Plan>) {
        let mut state = self.shared.state();
        let (connections, silent_below) = (state.connections, state.silent_below);
        *state = State {
            connections,
            counted_below: connections,
            plan,
            silent_below,
            ..State::default()
        };
    }

    /// How many bytes went to the server, and to the client.
    pub fn counted(&self) -> [u64; 2] {
        self.shared.state().passed
    }

    /// How many connections were cut since the count began.
    pub fn cuts(&self) -> u32 {
        self.shared.state().cuts
    }

    /// Swallows everything on the open connections, in both directions, like a router that has
    /// dropped them.
    pub fn silence(&self) {
        let mut state = self.shared.state();
        state.silent_below = state.connections;
    }

    /// The same on all connections, new ones too, until [`restore`](Self::restore).
    pub fn silence_all(&self) {
        self.shared.state().silent_below = u64::MAX;
    }

    /// Forwards new connections again; silent ones stay silent.
    pub fn restore(&self) {
        self.silence();
    }

    /// Delays everything from now on by this latency, in each direction, like a distant server.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Makes the server reachable again.
    pub fn mend(&self) {
        self.shared.state().out_of_reach = false;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts this many bytes; returns how many of them to forward, and whether the connection
    /// ends.
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
                    state.out_of_reach = true;
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
            if state.out_of_reach {
                continue; // Closed as it is dropped.
            }
            state.connections += 1;
            state.connections - 1
        };
        tokio::spawn(carry(client, server.clone(), number, shared.clone()));
    }
}

async fn carry(mut client: TcpStream, server: (String, u16), number: u64, shared: Arc<Shared>) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let mut ended = shared.ended.subscribe();
    let (mut sent, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let cut = loop {
        let (direction, read) = tokio::select! {
            read = client.read(&mut sent) => (Direction::ToServer, read.unwrap_or(0)),
            read = server.read(&mut answered) => (Direction::ToClient, read.unwrap_or(0)),
            _ = ended.wait_for(|ended| *ended > number) => break Cut::Reset,
        };
        if read == 0 {
            return;
        }
        let (silent, delay) = {
            let state = shared.state();
            (number < state.silent_below, state.delay)
        };
        if silent {
            continue;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (on, cut) = shared.pass(number, direction, read);
        let written = match direction {
            Direction::ToServer => server.write_all(&sent[..on]).await,
            Direction::ToClient => client.write_all(&answered[..on]).await,
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
            // With unread bytes it would be reset when it is dropped.
            let _ = stream.shutdown().await;
            let mut sink = tokio::io::sink();
            let rest = tokio::io::copy(&mut stream, &mut sink);
            let _ = tokio::time::timeout(Duration::from_secs(5), rest).await;
        }
    }
}
