//! A proxy that cuts a connection after a byte.
#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "helpers of tests are tests"
)]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// How a connection ends, for both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In order, as when a process ends: what was sent is still delivered.
    Fin,
    /// At once, as when a machine is gone: what is under way may be lost.
    Reset,
}

/// What to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub direction: Direction,
    /// So many bytes still pass; 0 cuts as the first one comes.
    pub after: u64,
    pub cut: Cut,
    /// Whether the server stays out of reach after it, on all connections.
    pub outage: bool,
}

/// A proxy before one server. It carries connections until it is told to cut, on the runtime that it was started on.
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
    /// Counted is what passes on connections that were there when the count began.
    counted_below: u64,
    passed: [u64; 2],
    plan: Option<Plan>,
    cuts: u32,
    /// Connections with a lower number carry nothing, and no one hears of it.
    silent_below: u64,
    /// How long everything is on its way, in each direction.
    delay: Duration,
}

impl Proxy {
    /// Starts one.
    pub async fn before(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { state: Mutex::default(), ended: watch::Sender::new(0) });
        tokio::spawn(accept(listener, (host.to_owned(), port), shared.clone()));
        Self { port: proxy, shared }
    }

    /// Counts from here on what passes on the connections that are open now, and cuts one of them if there is a plan.
    pub fn count(&self, plan: Option<Plan>) {
        let mut state = self.shared.state();
        let (connections, silent_below) = (state.connections, state.silent_below);
        *state = State { connections, counted_below: connections, plan, silent_below, ..State::default() };
    }

    /// How many bytes went to the server, and to the client.
    pub fn counted(&self) -> [u64; 2] {
        self.shared.state().passed
    }

    /// How many connections were cut since the count began.
    pub fn cuts(&self) -> u32 {
        self.shared.state().cuts
    }

    /// Swallows everything on the connections that are open now, in both directions, as when a machine on the way forgets them.
    #[allow(dead_code, reason = "not every store's tests lose a server so")]
    pub fn silence(&self) {
        let mut state = self.shared.state();
        state.silent_below = state.connections;
    }

    /// The same on all connections, new ones too, until [`restore`](Self::restore).
    #[allow(dead_code, reason = "not every store's tests lose a server so")]
    pub fn silence_all(&self) {
        self.shared.state().silent_below = u64::MAX;
    }

    /// Carries new connections again; those that were silent stay so.
    #[allow(dead_code, reason = "not every store's tests lose a server so")]
    pub fn restore(&self) {
        self.silence();
    }

    /// Delays all that passes from here on by so much, in each direction, as a server that is far away does.
    #[allow(dead_code, reason = "not every store's tests have such a server")]
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Lets the server be reached again.
    pub fn mend(&self) {
        self.shared.state().out_of_reach = false;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many bytes in; says how many of them go on, and whether that is the end.
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
            // With something unread it would be reset when it is dropped.
            let _ = stream.shutdown().await;
            let mut nobody = tokio::io::sink();
            let rest = tokio::io::copy(&mut stream, &mut nobody);
            let _ = tokio::time::timeout(Duration::from_secs(5), rest).await;
        }
    }
}
