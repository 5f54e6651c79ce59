//! A proxy for HTTP/1.1 that loses, delays, repeats and truncates messages at random, and responds
//! in place of the server.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// A delay that is longer than most clients wait.
const LONG: Duration = Duration::from_millis(3500);
const SHORT: Duration = Duration::from_millis(300);

/// What happens to a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The request is not forwarded, and the connection is closed.
    LostRequest,
    /// The request is forwarded, and the connection is closed instead of the response.
    LostResponse,
    /// The response breaks off.
    Truncated,
    /// The request is forwarded late, perhaps after its client has gone.
    Delayed,
    /// The request is forwarded a second time, at about the same time or later.
    Repeated,
    /// The request is forwarded, and the proxy responds in place of the server.
    Replaced,
}

const FAULTS: [Fault; 6] = [
    Fault::LostRequest,
    Fault::LostResponse,
    Fault::Truncated,
    Fault::Delayed,
    Fault::Repeated,
    Fault::Replaced,
];

/// What gateways, login pages and other services respond: head and body.
const IN_FRONT: [(&str, &str); 8] = [
    ("401 Unauthorized", ""),
    ("403 Forbidden", "<html>"),
    ("404 Not Found", ""),
    ("407 Proxy Authentication Required", ""),
    ("302 Found\r\nlocation: /login", ""),
    ("413 Content Too Large", ""),
    ("425 Too Early", ""),
    ("503 Service Unavailable", r#"{"type":"t","code":"overloaded","retryable":true}"#),
];

/// A proxy in front of one server. It runs until the process ends.
#[derive(Clone)]
pub struct Unreliable {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    target: SocketAddr,
    random: fastrand::Rng,
    /// The share of requests to which something happens.
    share: f64,
    /// Whether each attempt gets another key.
    replaces_keys: bool,
    requests: u64,
    /// How many requests are being forwarded, or wait for it.
    forwarding: u64,
    faults: BTreeMap<Fault, u64>,
}

impl Unreliable {
    /// Starts a proxy. `share` is the share of requests to which something happens.
    #[must_use]
    pub fn in_front_of(target: SocketAddr, seed: u64, share: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let random = fastrand::Rng::with_seed(seed);
        let state = State {
            target,
            random,
            share,
            replaces_keys: false,
            requests: 0,
            forwarding: 0,
            faults: BTreeMap::new(),
        };
        let proxy = Self { address, state: Arc::new(Mutex::new(state)) };
        let accepting = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = accepting.clone();
                thread::spawn(move || {
                    // An error is what a client sees that has lost its connection.
                    let _ = proxy.serve(&client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        proxy
    }

    /// Forwards new requests to another server.
    pub fn set_target(&self, target: SocketAddr) {
        self.state.lock().unwrap().target = target;
    }

    /// Gives each request another key, as a client does that mints a key for each attempt.
    pub fn replace_keys(&self) {
        self.state.lock().unwrap().replaces_keys = true;
    }

    /// The number of requests so far, and of each fault.
    #[must_use]
    pub fn counts(&self) -> (u64, BTreeMap<Fault, u64>) {
        let state = self.state.lock().unwrap();
        (state.requests, state.faults.clone())
    }

    /// Whether no request is being forwarded, or will be without a new one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state.lock().unwrap().forwarding == 0
    }

    /// The server, what happens to the request, and a number between 0 and 100.
    fn draw(&self) -> (SocketAddr, Option<Fault>, u32) {
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let fault =
            (state.random.f64() < state.share).then(|| FAULTS[state.random.usize(..FAULTS.len())]);
        if let Some(fault) = fault {
            *state.faults.entry(fault).or_default() += 1;
        }
        if fault != Some(Fault::LostRequest) {
            state.forwarding += 1;
        }
        (state.target, fault, state.random.u32(0..100))
    }

    fn serve(&self, mut client: &TcpStream) -> io::Result<()> {
        while let Some(mut request) = read_message(client)? {
            self.replace_key(&mut request);
            let (target, fault, percent) = self.draw();
            if fault == Some(Fault::LostRequest) {
                return Ok(());
            }
            match fault {
                Some(Fault::Delayed) if percent < 20 => thread::sleep(LONG),
                Some(Fault::Delayed) => thread::sleep(SHORT * percent / 100),
                Some(Fault::Repeated) => {
                    let (proxy, repeated) = (self.clone(), request.clone());
                    self.state.lock().unwrap().forwarding += 1;
                    thread::spawn(move || {
                        thread::sleep(SHORT * percent * percent / 10_000);
                        proxy.forward(target, &repeated)
                    });
                }
                _ => {}
            }
            let response = self.forward(target, &request)?;
            match fault {
                Some(Fault::LostResponse) => return Ok(()),
                Some(Fault::Replaced) => {
                    let (head, body) = IN_FRONT[percent as usize % IN_FRONT.len()];
                    let length = body.len();
                    let text = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
                    client.write_all(text.as_bytes())?;
                }
                Some(Fault::Truncated) => {
                    return client.write_all(&response[..response.len() * percent as usize / 100]);
                }
                _ => client.write_all(&response)?,
            }
        }
        Ok(())
    }

    /// Changes the last characters of the key, if keys are replaced.
    fn replace_key(&self, request: &mut [u8]) {
        const NAME: &[u8] = b"idempotency-key: ";
        let mut state = self.state.lock().unwrap();
        if !state.replaces_keys {
            return;
        }
        let at = request.windows(NAME.len()).position(|bytes| bytes == NAME).unwrap();
        let end = at + request[at..].iter().position(|byte| *byte == b'\r').unwrap();
        request[end - 12..end].fill_with(|| state.random.digit(16) as u8);
    }

    /// Sends a request on a new connection, and returns the bytes of the response.
    fn forward(&self, target: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
        let response = forward(target, request);
        self.state.lock().unwrap().forwarding -= 1;
        response
    }
}

fn forward(target: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(target)?;
    server.write_all(request)?;
    read_message(&server)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Reads one message with its body; `None` if the connection is closed before it.
fn read_message(mut from: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let (mut message, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        if message_length(&message).is_some_and(|length| message.len() >= length) {
            return Ok(Some(message));
        }
        match from.read(&mut buffer)? {
            0 if message.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => message.extend_from_slice(&buffer[..read]),
        }
    }
}

/// The length of a message whose head is complete. Bodies have a `Content-Length`, or none.
fn message_length(message: &[u8]) -> Option<usize> {
    let head = message.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let lines = std::str::from_utf8(&message[..head]).unwrap().to_ascii_lowercase();
    assert!(!lines.contains("transfer-encoding"), "a chunked body: {lines}");
    let length = lines.split("\r\n").find_map(|line| line.strip_prefix("content-length:"));
    Some(head + length.map_or(0, |length| length.trim().parse().unwrap()))
}
