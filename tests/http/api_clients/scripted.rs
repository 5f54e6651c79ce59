//! A server that follows a script: one connection for each line of it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use reqwest::Url;
use sha2::{Digest, Sha256};

/// What the server does with a request.
pub(super) enum Line {
    /// Sends these bytes, and closes the connection.
    Send(String),
    /// Closes the connection.
    Close,
    /// Keeps the connection open, without a response.
    Ignore,
    /// Sends a problem with this status and code, and `Retry-After: 60`, as the guard of a server
    /// does: marked as a request that was not run.
    NotRun(u16, &'static str),
}

use Line::{Close, Ignore, NotRun, Send};

/// A response with a status, headers and a body.
pub(super) fn respond(status: u16, headers: &[(&str, &str)], body: &str) -> Line {
    let mut text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    Send(format!("{text}connection: close\r\n\r\n{body}"))
}

/// The response of a marked refusal. The mark is a digest of the request's key.
fn not_run(line: &Line, request: &str) -> Option<Line> {
    let NotRun(status, code) = line else { return None };
    let mut lines = request.lines();
    let key = lines.find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap();
    let digest = Sha256::new().chain_update("idempotency-not-run\0").chain_update(key).finalize();
    let mark: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let retryable = *status == 503;
    let body = format!(r#"{{"type":"t","code":"{code}","retryable":{retryable}}}"#);
    Some(respond(*status, &[("retry-after", "60"), ("idempotency-not-run", &mark)], &body))
}

/// A response that breaks off in its body.
pub(super) fn truncated() -> Line {
    Send("HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\n12345".to_owned())
}

/// A running server. After its last line it closes each connection.
pub(super) struct Scripted {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(super) fn new(script: impl IntoIterator<Item = Line>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, script) = (requests.clone(), script.into_iter().collect::<Vec<_>>());
        thread::spawn(move || {
            let mut ignored = Vec::new();
            // After the script, requests are only recorded.
            for line in script.into_iter().chain(std::iter::repeat_with(|| Close)) {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut request, mut buffer) = (String::new(), [0; 4096]);
                while !is_complete(&request) {
                    let read = stream.read(&mut buffer).unwrap_or(0);
                    if read == 0 {
                        break;
                    }
                    request += std::str::from_utf8(&buffer[..read]).unwrap();
                }
                let refusal = not_run(&line, &request);
                seen.lock().unwrap().push(request);
                match refusal.unwrap_or(line) {
                    Send(text) => stream.write_all(text.as_bytes()).unwrap(),
                    Close => {}
                    Ignore => ignored.push(stream),
                    NotRun(..) => unreachable!("it is a response"),
                }
            }
        });
        Self { address, requests }
    }

    pub(super) fn url(&self) -> Url {
        format!("http://{}/orders?a=b", self.address).parse().unwrap()
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The keys of the requests so far; empty if a request has none.
    pub(super) fn keys(&self) -> Vec<String> {
        self.header("idempotency-key")
    }

    /// The values of a header in the requests so far.
    pub(super) fn header(&self, name: &str) -> Vec<String> {
        let name = format!("{name}: ");
        let requests = self.requests();
        let values = requests.iter().map(|request| {
            let line = request.lines().find_map(|line| line.strip_prefix(name.as_str()));
            line.unwrap_or_default().to_owned()
        });
        values.collect()
    }
}

fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
