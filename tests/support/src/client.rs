//! An HTTP client that sends exact bytes and returns the bytes that it receives.

use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::WAIT_LIMIT;

/// A request, line by line. Only `Host` and the length of its body are added.
#[derive(Clone, Debug)]
pub struct Request {
    head: String,
    length: bool,
    body: Vec<u8>,
}

impl Request {
    /// A request with this method for this target.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            head: format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n"),
            length: true,
            body: Vec::new(),
        }
    }

    /// A POST.
    #[must_use]
    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    /// Adds a header line.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        write!(self.head, "{name}: {}\r\n", value.as_ref()).unwrap();
        self
    }

    /// Adds an `Idempotency-Key` line.
    #[must_use]
    pub fn key(self, key: impl AsRef<str>) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// Adds an `X-User` line.
    #[must_use]
    pub fn user(self, user: &str) -> Self {
        self.header("X-User", user)
    }

    /// Sets the body, with a known length.
    #[must_use]
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Sets the body, with the content type `application/json`.
    #[must_use]
    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// Sets the body, which is sent in these chunks.
    #[must_use]
    pub fn chunks<C: AsRef<[u8]>>(mut self, chunks: impl IntoIterator<Item = C>) -> Self {
        self = self.header("Transfer-Encoding", "chunked");
        self.length = false;
        for chunk in chunks {
            let chunk = chunk.as_ref();
            write!(self.body, "{:x}\r\n", chunk.len()).unwrap();
            self.body.extend_from_slice(chunk);
            self.body.extend_from_slice(b"\r\n");
        }
        self.body.extend_from_slice(b"0\r\n\r\n");
        self
    }

    /// Omits `Content-Length`; the test adds its own, or none.
    #[must_use]
    pub fn without_length(mut self) -> Self {
        self.length = false;
        self
    }

    /// The bytes as they are sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone().into_bytes();
        if self.length && !self.body.is_empty() {
            write!(bytes, "Content-Length: {}\r\n", self.body.len()).unwrap();
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A request that was sent and whose response has not been read yet.
#[derive(Debug)]
pub struct Pending {
    stream: TcpStream,
}

impl Pending {
    /// Sends these bytes on a new connection.
    ///
    /// # Panics
    /// When the port has no listener.
    #[must_use]
    pub fn send(to: SocketAddr, bytes: &[u8]) -> Self {
        Self::try_send(to, bytes).unwrap()
    }

    /// Sends these bytes on a new connection.
    ///
    /// # Errors
    /// When the port has no listener.
    pub fn try_send(to: SocketAddr, bytes: &[u8]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(WAIT_LIMIT))?;
        stream.set_nodelay(true)?;
        // A server that refuses a body may close while it is being sent; its response can still be
        // read.
        let _ = stream.write_all(bytes);
        Ok(Self { stream })
    }

    /// Reads the response.
    ///
    /// # Panics
    /// When there is none, or not all of it.
    #[must_use]
    pub fn response(self) -> ClientResponse {
        self.try_response().expect("a response")
    }

    /// Reads the response.
    ///
    /// # Errors
    /// When there is none, or not all of it.
    pub fn try_response(mut self) -> io::Result<ClientResponse> {
        let mut raw = Vec::new();
        loop {
            if let Some(response) = ClientResponse::parse(&raw) {
                return Ok(response);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the response was cut off",
                    ));
                }
                Ok(read) => raw.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                // A read with a timeout is not restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends more bytes.
    ///
    /// # Panics
    /// When the server has closed the connection.
    pub fn send_more(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads until the received bytes contain `end`, and returns all of them as text.
    ///
    /// # Panics
    /// When the connection ends first, or nothing is received for [`WAIT_LIMIT`].
    pub fn read_until(&mut self, end: &str) -> String {
        let mut raw = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&raw);
            if text.contains(end) {
                return text.into_owned();
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the connection ended after {text:?}"),
                Ok(read) => raw.extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {text:?}"),
            }
        }
    }

    /// Whether the server has sent any byte of its response.
    #[must_use]
    pub fn response_has_begun(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }
}

/// A response as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientResponse {
    /// The status code.
    pub status: u16,
    /// The header lines in order: the name in lower case, the value as received.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, with the chunks joined.
    pub body: Vec<u8>,
}

impl ClientResponse {
    /// Parses a response; `None` while it is incomplete.
    fn parse(raw: &[u8]) -> Option<Self> {
        let mut lines = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut lines);
        let httparse::Status::Complete(length) = head.parse(raw).unwrap() else { return None };
        let headers = head
            .headers
            .iter()
            .map(|line| (line.name.to_ascii_lowercase(), line.value.to_vec()))
            .collect();
        let mut response = Self { status: head.code.unwrap(), headers, body: Vec::new() };
        let rest = raw.get(length..)?;
        response.body = if response.header("transfer-encoding") == Some("chunked") {
            chunked(rest)?
        } else {
            let length =
                response.header("content-length").map_or(0, |length| length.parse().unwrap());
            rest.get(..length)?.to_vec()
        };
        Some(response)
    }

    /// The only value of a header, if it is present.
    ///
    /// # Panics
    /// When the header has two lines.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.lines(name);
        assert!(lines.len() < 2, "{name} has {} lines", lines.len());
        lines.first().copied()
    }

    /// All values of a header, in order.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<&str> {
        let lines = self.headers.iter().filter(|(line, _)| line == name);
        lines.map(|(_, value)| std::str::from_utf8(value).unwrap()).collect()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The `code` of a problem, with its status.
    #[must_use]
    pub fn problem(&self) -> (u16, String) {
        let code =
            self.json().get("code").and_then(|code| code.as_str()).unwrap_or_default().to_owned();
        (self.status, code)
    }

    /// Whether the response is marked as a replay.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The header lines without `Date` and `Idempotency-Replayed`, which differ between a response
    /// and its replay. They are sorted by name, because actix keeps headers in a hash map.
    #[must_use]
    pub fn stable_headers(&self) -> Vec<(String, Vec<u8>)> {
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| name != "date" && name != "idempotency-replayed");
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        headers
    }

    /// Asserts that this response is marked as a replay and is otherwise equal to `first`, byte for
    /// byte. A replay also has `Cache-Control: no-store` where the handler set no `Cache-Control`.
    ///
    /// # Panics
    /// When the response differs.
    pub fn assert_replays(&self, first: &Self) {
        assert!(!first.is_replay(), "the first response is marked as a replay");
        assert!(self.is_replay(), "not marked as a replay: {self:?}");
        assert_eq!(self.status, first.status);
        let mut expected = first.stable_headers();
        if first.header("cache-control").is_none() {
            expected.push(("cache-control".into(), b"no-store".into()));
            expected.sort_by(|one, other| one.0.cmp(&other.0));
        }
        assert_eq!(self.stable_headers(), expected);
        assert_eq!(self.body, first.body);
    }
}

fn chunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(rest.get(..end)?).ok()?, 16).unwrap();
        rest = rest.get(end + 2..)?;
        body.extend_from_slice(rest.get(..size)?);
        let after = rest.get(size..size + 2)?;
        assert_eq!(after, b"\r\n", "the chunk does not end with CRLF");
        rest = rest.get(size + 2..)?;
        if size == 0 {
            return Some(body);
        }
    }
}
