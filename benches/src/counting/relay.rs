//! A proxy in front of Postgres that counts how often a client waits for it.

use std::{
    io::{self, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// `ReadyForQuery`, the last message of the server in each round trip.
const READY: u8 = b'Z';

/// A proxy that runs until the process ends.
pub(super) struct Relay {
    pub(super) port: u16,
    round_trips: Arc<AtomicU64>,
}

impl Relay {
    pub(super) fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay =
            Self { port: listener.local_addr().unwrap().port(), round_trips: Arc::default() };
        let round_trips = relay.round_trips.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, round_trips) =
                    (TcpStream::connect(("127.0.0.1", port)).unwrap(), round_trips.clone());
                // Otherwise Nagle's algorithm would delay small messages.
                client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                thread::spawn(move || forward(server, client, &round_trips));
            }
        });
        relay
    }

    /// The number of round trips so far.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::SeqCst)
    }
}

/// Forwards the server's messages. Each is a type byte and a length that includes itself.
fn forward(server: TcpStream, mut client: TcpStream, round_trips: &AtomicU64) -> io::Result<()> {
    let (mut server, mut message) = (BufReader::new(server), Vec::new());
    loop {
        message.resize(5, 0);
        server.read_exact(&mut message)?;
        let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize;
        message.resize(length + 1, 0);
        server.read_exact(&mut message[5..])?;
        if message[0] == READY {
            round_trips.fetch_add(1, Ordering::SeqCst);
        }
        client.write_all(&message)?;
    }
}
