//! Stands between a server under test and Postgres, and counts how often Postgres was waited for.

use std::{
    io::{self, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// `ReadyForQuery`, which ends the answer to each message that is waited for.
const READY: u8 = b'Z';

/// Ends with its process.
pub(super) struct Relay {
    pub(super) port: u16,
    answers: Arc<AtomicU64>,
}

impl Relay {
    pub(super) fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Self { port: listener.local_addr().unwrap().port(), answers: Arc::default() };
        let answers = relay.answers.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, answers) = (TcpStream::connect(("127.0.0.1", port)).unwrap(), answers.clone());
                // Small messages are not kept back until there are more.
                client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                thread::spawn(move || pass_on(server, client, &answers));
            }
        });
        relay
    }

    /// How many there were so far.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }
}

/// Each of the server's messages is a type and a length, which counts itself.
fn pass_on(server: TcpStream, mut client: TcpStream, answers: &AtomicU64) -> io::Result<()> {
    let (mut server, mut message) = (BufReader::new(server), Vec::new());
    loop {
        message.resize(5, 0);
        server.read_exact(&mut message)?;
        let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]) as usize;
        message.resize(length + 1, 0);
        server.read_exact(&mut message[5..])?;
        if message[0] == READY {
            answers.fetch_add(1, Ordering::SeqCst);
        }
        client.write_all(&message)?;
    }
}
