//! One keep-alive connection with one request under way.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use mio::net::TcpStream;

const BODY: &str = r#"{"amount":2000,"currency":"usd","payment_method":"pm_card_visa","confirm":true,"description":"Order 4711, two seats in the third row","metadata":{"order":"4711","channel":"web","basket":"b-20261121"}}"#;

/// A connection, and what was sent and has come on it.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    to: SocketAddr,
    request: Vec<u8>,
    key_at: usize,
    answer: Vec<u8>,
    filled: usize,
    sent: Instant,
}

/// An answer that has come.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) replayed: bool,
    pub(super) length: usize,
    pub(super) after: Duration,
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

impl Connection {
    pub(super) fn open(to: SocketAddr) -> io::Result<Self> {
        let head = format!(
            "POST /work HTTP/1.1\r\nhost: {to}\r\nauthorization: Bearer alice\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nidempotency-key: ",
            BODY.len()
        );
        let request = [head.as_bytes(), &[b'0'; 36], b"\r\n\r\n", BODY.as_bytes()].concat();
        let (key_at, answer) = (head.len(), vec![0; 1 << 16]);
        Ok(Self { stream: connect(to)?, to, request, key_at, answer, filled: 0, sent: Instant::now() })
    }

    /// Opens it anew.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.stream = connect(self.to)?;
        Ok(())
    }

    pub(super) fn send(&mut self, key: &[u8; 36]) -> io::Result<()> {
        self.request[self.key_at..self.key_at + 36].copy_from_slice(key);
        self.send_again()
    }

    pub(super) fn send_again(&mut self) -> io::Result<()> {
        (self.sent, self.filled) = (Instant::now(), 0);
        // It fits into the socket's buffer, which is empty.
        self.stream.write_all(&self.request)
    }

    /// What has come; `None` while there is more to come.
    pub(super) fn receive(&mut self) -> io::Result<Option<Answer>> {
        loop {
            if self.filled == self.answer.len() {
                self.answer.resize(2 * self.filled, 0);
            }
            match self.stream.read(&mut self.answer[self.filled..]) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some((status, replayed, length)) = read(&self.answer[..self.filled])? {
                return Ok(Some(Answer { status, replayed, length, after: self.sent.elapsed() }));
            }
        }
    }
}

/// Status, whether it is a replay, and the length of the body; `None` while it is not whole.
fn read(answer: &[u8]) -> io::Result<Option<(u16, bool, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(answer).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    let (mut length, mut replayed, mut chunked) = (0, false, false);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            length = std::str::from_utf8(header.value).ok().and_then(|value| value.parse().ok()).unwrap_or(0);
        }
        replayed |= header.name.eq_ignore_ascii_case("idempotency-replayed");
        chunked |= header.name.eq_ignore_ascii_case("transfer-encoding");
    }
    let body = answer.len() - head;
    let whole = if chunked { answer.ends_with(b"0\r\n\r\n") } else { body >= length };
    Ok(whole.then(|| (response.code.unwrap_or(0), replayed, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 3\r\nIdempotency-Replayed: true\r\n\r\nabc";
        assert_eq!(read(answer).unwrap(), Some((201, true, 3)));
        assert!((0..answer.len()).all(|end| read(&answer[..end]).unwrap().is_none()));
        let chunked = b"HTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(read(chunked).unwrap().map(|(status, replayed, _)| (status, replayed)), Some((409, false)));
        assert!((0..chunked.len()).all(|end| read(&chunked[..end]).unwrap().is_none()));
    }
}
