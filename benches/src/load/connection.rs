//! One keep-alive connection with one request in flight.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use mio::net::TcpStream;

const BODY: &str = "{\"amount\":2000,\"currency\":\"usd\",\"payment_method\":\"pm_card_visa\",\
    \"confirm\":true,\"description\":\"Order 4711, two seats in the third row\",\
    \"metadata\":{\"order\":\"4711\",\"channel\":\"web\",\"basket\":\"b-20261121\"}}";

/// The tokens of the principals.
const PRINCIPALS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// A connection with its request and the bytes received so far.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    to: SocketAddr,
    request: Vec<u8>,
    key_at: usize,
    buffer: Vec<u8>,
    filled: usize,
    /// The start of the request in flight, from which its latency is counted.
    started: Option<Instant>,
}

/// A complete response.
pub(super) struct Response {
    pub(super) started: Instant,
    pub(super) status: u16,
    pub(super) replayed: bool,
    pub(super) length: usize,
    pub(super) latency: Duration,
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

impl Connection {
    pub(super) fn open(to: SocketAddr, principal: usize) -> io::Result<Self> {
        let token = PRINCIPALS[principal];
        let head = format!(
            "POST /work HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\n\
             content-length: {}\r\nidempotency-key: ",
            BODY.len()
        );
        let request = [head.as_bytes(), &[b'0'; 36], b"\r\n\r\n", BODY.as_bytes()].concat();
        let (key_at, buffer) = (head.len(), vec![0; 1 << 16]);
        Ok(Self { stream: connect(to)?, to, request, key_at, buffer, filled: 0, started: None })
    }

    /// The start of the request in flight, if there is one.
    pub(super) fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Connects again.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.stream = connect(self.to)?;
        Ok(())
    }

    /// Sends a request that has started at this instant.
    pub(super) fn send(&mut self, key: &[u8; 36], started: Instant) -> io::Result<()> {
        self.request[self.key_at..self.key_at + 36].copy_from_slice(key);
        self.started = Some(started);
        self.send_again()
    }

    /// Sends the request in flight again, if there is one.
    pub(super) fn send_again(&mut self) -> io::Result<()> {
        if self.started.is_none() {
            return Ok(());
        }
        self.filled = 0;
        // The socket's buffer is empty, and the request fits into it.
        match self.stream.write_all(&self.request) {
            // The server has closed the connection, which the next read will show.
            Err(error) if is_closed(&error) => Ok(()),
            sent => sent,
        }
    }

    /// Reads the bytes that have arrived; `None` until the response is complete. Fails with
    /// [`ErrorKind::ConnectionReset`] if the server has closed the connection.
    pub(super) fn receive(&mut self) -> io::Result<Option<Response>> {
        loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Err(error) if is_closed(&error) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some((status, replayed, length)) = parse(&self.buffer[..self.filled])? {
                let unexpected = io::Error::new(ErrorKind::InvalidData, "response to no request");
                let started = self.started.take().ok_or(unexpected)?;
                let latency = started.elapsed();
                return Ok(Some(Response { started, status, replayed, length, latency }));
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Parses a response: its status, whether it is a replay, and the length of its body. `None` if it
/// is incomplete.
fn parse(bytes: &[u8]) -> io::Result<Option<(u16, bool, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed =
        response.parse(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    let (mut length, mut replayed, mut chunked) = (0, false, false);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            length = std::str::from_utf8(header.value)
                .ok()
                .and_then(|value| value.parse().ok())
                .unwrap_or(0);
        }
        replayed |= header.name.eq_ignore_ascii_case("idempotency-replayed");
        chunked |= header.name.eq_ignore_ascii_case("transfer-encoding");
    }
    let body = bytes.len() - head;
    let complete = if chunked { bytes.ends_with(b"0\r\n\r\n") } else { body >= length };
    Ok(complete.then(|| (response.code.unwrap_or(0), replayed, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_returned_only_once_its_body_is_complete() {
        let complete =
            b"HTTP/1.1 201 Created\r\ncontent-length: 3\r\nIdempotency-Replayed: true\r\n\r\nabc";
        assert_eq!(parse(complete).unwrap(), Some((201, true, 3)));
        assert!((0..complete.len()).all(|end| parse(&complete[..end]).unwrap().is_none()));
        let chunked =
            b"HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(
            parse(chunked).unwrap().map(|(status, replayed, _)| (status, replayed)),
            Some((409, false))
        );
        assert!((0..chunked.len()).all(|end| parse(&chunked[..end]).unwrap().is_none()));
    }
}
