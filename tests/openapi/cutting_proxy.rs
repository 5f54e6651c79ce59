//! A proxy for HTTP/1.1 that loses the first response, after the server has sent it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// How long a peer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The proxy. Its thread ends with the process.
pub(crate) struct CuttingProxy {
    pub(crate) address: String,
    keys: Arc<Mutex<Vec<String>>>,
}

impl CuttingProxy {
    /// Starts a proxy in front of a server.
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let keys = Arc::new(Mutex::new(Vec::new()));
        let (server, seen) = (server.to_owned(), keys.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                exchange(client.unwrap(), &server, &seen);
            }
        });
        Self { address, keys }
    }

    /// The idempotency keys of the requests so far.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

/// Passes one request on, and its response unless it is the first one.
fn exchange(mut client: TcpStream, server: &str, keys: &Mutex<Vec<String>>) {
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let Some((head, body)) = request(&mut client) else { return };
    let key = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("Idempotency-Key").then(|| value.trim().to_owned())
    });
    let is_first = {
        let mut keys = keys.lock().unwrap();
        keys.extend(key);
        keys.len() == 1
    };
    // The server closes its connection at the end of the response.
    let lines = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut passed: String = lines.flat_map(|line| [line, "\r\n"]).collect();
    passed.push_str("connection: close\r\n\r\n");
    let mut server = TcpStream::connect(server).unwrap();
    server.set_read_timeout(Some(LIMIT)).unwrap();
    server.write_all(passed.as_bytes()).unwrap();
    server.write_all(&body).unwrap();
    let mut response = Vec::new();
    server.read_to_end(&mut response).unwrap();
    if !is_first {
        client.write_all(&response).unwrap();
    }
}

/// The head of a request, without the empty line, and its body.
fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().trim_end().to_owned();
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().map_or(0, |(_, length)| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    client.read_exact(&mut body).unwrap();
    Some((head, body))
}
