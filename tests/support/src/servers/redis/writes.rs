//! What a server writes to its replicas and to its append-only file.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
};

use super::Server;
use crate::WAIT_LIMIT;

/// A command with its arguments.
pub type Written = Vec<Vec<u8>>;

/// A replica that executes nothing, and shows what the server sends it.
pub struct Replica(BufReader<TcpStream>);

impl Replica {
    /// Connects to a server as a replica does, and reads the data that the server has so far.
    pub fn of(server: &Server) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let mut replica = Self(BufReader::new(stream));
        for (request, reply) in [
            ("REPLCONF listening-port 1", "+OK"),
            ("REPLCONF capa psync2", "+OK"),
            ("PSYNC ? -1", "+FULLRESYNC"),
        ] {
            replica.0.get_mut().write_all(format!("{request}\r\n").as_bytes()).unwrap();
            let line = replica.line();
            assert!(line.starts_with(reply), "{request}: {line}");
        }
        let length: usize = replica.line().strip_prefix('$').unwrap().parse().unwrap();
        replica.0.read_exact(&mut vec![0; length]).unwrap();
        replica
    }

    /// Reads a line. The server keeps the connection alive with empty ones.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the server closed the connection");
            if !line.trim().is_empty() {
                return line.trim_end().to_owned();
            }
        }
    }

    /// Reads the commands that precede one with this name.
    pub fn read_until(&mut self, name: &str) -> Vec<Written> {
        let mut commands = Vec::new();
        loop {
            match read_command(&mut self.0) {
                Some(command) if command[0].eq_ignore_ascii_case(name.as_bytes()) => {
                    return commands;
                }
                Some(command) => commands.push(command),
                None => panic!("the server closed the connection"),
            }
        }
    }
}

impl Server {
    /// The commands in the append-only file that the server has not rewritten.
    pub fn append_only_file(&self) -> Vec<Written> {
        let mut commands = Vec::new();
        for file in fs::read_dir(self.directory.join("appendonlydir")).unwrap() {
            let path = file.unwrap().path();
            if path.to_string_lossy().ends_with(".incr.aof") {
                let mut file = BufReader::new(fs::File::open(path).unwrap());
                commands.extend(std::iter::from_fn(|| read_command(&mut file)));
            }
        }
        commands
    }
}

/// Reads a command; `None` at the end.
fn read_command(from: &mut impl BufRead) -> Option<Written> {
    let arguments = read_length(from, '*')?;
    let read = |_| {
        let length = read_length(from, '$').unwrap();
        let mut argument = vec![0; length + 2];
        from.read_exact(&mut argument).unwrap();
        argument.truncate(length);
        argument
    };
    Some((0..arguments).map(read).collect())
}

/// Reads a line with a length, after empty ones and annotations.
fn read_length(from: &mut impl BufRead, kind: char) -> Option<usize> {
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        if let Some(length) = line.strip_prefix(kind) {
            return Some(length.trim_end().parse().unwrap());
        }
        assert!(line.trim().is_empty() || line.starts_with('#'), "{line}");
    }
}
