//! A server under test and the load on it, each in its own process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::{
    cpu,
    load::{Plan, Sample},
};

/// The processor of the server under test. The load runs on the last processor; databases are not
/// pinned.
const PROCESSOR: usize = 0;

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// A built-in server: this program, or the program at this path, with these arguments.
    BuiltIn(Option<String>, Vec<String>),
    /// A command line. The command reads the store's URL from `STORE_URL` and prints
    /// `listening on ADDRESS`.
    External(String),
}

/// A running server, which is killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) at: SocketAddr,
    _input: Option<ChildStdin>,
}

fn current_program() -> String {
    std::env::current_exe().unwrap().to_str().expect("the path is UTF-8").to_owned()
}

impl Server {
    /// Starts a server with this store and waits until it listens.
    pub(crate) fn start(program: &Program, store: &str) -> Self {
        Self::start_with(program, store, |program| cpu::pinned(program, PROCESSOR))
    }

    /// The same on all processors.
    pub(crate) fn start_unpinned(program: &Program, store: &str) -> Self {
        Self::start_with(program, store, |program| Command::new(program))
    }

    fn start_with(program: &Program, store: &str, command: impl Fn(&str) -> Command) -> Self {
        let mut command = match program {
            Program::BuiltIn(path, words) => {
                let mut command = command(path.as_deref().unwrap_or(&current_program()));
                command.arg("serve").args(words).args(["--store", store]);
                command
            }
            Program::External(line) => {
                let mut command = command("sh");
                command.args(["-c", line]);
                command
            }
        };
        command.env("STORE_URL", store).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let at = read_address(&mut output)
            .unwrap_or_else(|| panic!("{command:?} ended without `listening on ADDRESS`"));
        // Later output must not block the server.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self { _input: child.stdin.take(), child, at }
    }

    /// The server's process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a `GET` request and returns the body of the response.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: benchmark\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split_once("\r\n\r\n").expect("the response has a body").1.to_owned()
    }
}

/// The address in the line `listening on ADDRESS`.
fn read_address(output: &mut impl BufRead) -> Option<SocketAddr> {
    let line = output.lines().map_while(Result::ok).find(|line| line.contains("listening on "))?;
    line.split_once("listening on ")?
        .1
        .trim()
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()
        .ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let processes = cpu::tree(self.child.id()).into_iter().map(|process| process.to_string());
        let _ = Command::new("kill").arg("-9").args(processes).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// Runs a load and returns its sample.
pub(crate) fn load(plan: &Plan) -> Sample {
    finish(start_load(plan))
}

/// Starts a load.
pub(crate) fn start_load(plan: &Plan) -> Child {
    let mut command = cpu::pinned(&current_program(), cpu::count().saturating_sub(1));
    command
        .arg("load")
        .arg(serde_json::to_string(plan).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a load.
pub(crate) fn finish(load: Child) -> Sample {
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success(), "the load failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_output_of_a_server() {
        let port = |text: &str| read_address(&mut text.as_bytes()).map(|at| at.port());
        assert_eq!(port("starting\nlistening on 127.0.0.1:4711\nmore\n"), Some(4711));
        assert_eq!(port("INFO listening on http://127.0.0.1:80/\n"), Some(80));
        assert_eq!(port("starting\n"), None);
    }
}
