//! The consumer as a process, and the servers that it uses.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard},
};

use redis::{
    Commands, Connection,
    streams::{StreamInfoGroupsReply, StreamPendingReply, StreamRangeReply},
};
use test_support::servers::redis::{IN_MEMORY, Server};

use crate::payments::{records::Records, server::Files};

pub(super) const STREAM: &str = "deposits";
const ASIDE: &str = "deposits:aside";
const GROUP: &str = "ledger";
/// Short, so that messages are also delivered to a second consumer while the first one lives.
const REDELIVER_AFTER: &str = "200";

/// A Redis server and a Postgres database that no other test uses.
pub(super) struct Setting {
    server: Server,
    redis: Mutex<Connection>,
    files: Files,
    database: String,
    pub(super) claim: &'static str,
}

/// The state of the group of consumers.
pub(super) struct Group {
    /// Messages that no consumer has received yet.
    pub(super) waiting: usize,
    /// Messages that were received and not acknowledged.
    pending: usize,
    pub(super) acknowledged: usize,
}

impl Group {
    pub(super) fn is_consumed(&self) -> bool {
        self.waiting == 0 && self.pending == 0
    }
}

impl Setting {
    pub(super) fn new(claim: &'static str) -> Self {
        let (server, records) = (Server::start(IN_MEMORY), Records::postgres());
        let Records::Postgres(database) = &records else { unreachable!("it is in Postgres") };
        let redis = Mutex::new(server.client().get_connection().unwrap());
        Self { server, redis, database: database.clone(), files: Files::with(records), claim }
    }

    pub(super) fn redis(&self) -> MutexGuard<'_, Connection> {
        self.redis.lock().unwrap()
    }

    pub(super) fn group(&self) -> Group {
        let groups: StreamInfoGroupsReply = self.redis().xinfo_groups(STREAM).unwrap();
        let group = groups.groups.first().expect("the group of the consumers");
        let (waiting, read) = (group.lag.expect("a lag"), group.entries_read.unwrap_or(0));
        Group { waiting, pending: group.pending, acknowledged: read - group.pending }
    }

    /// How many messages a consumer has received and not acknowledged.
    pub(super) fn pending_of(&self, name: &str) -> usize {
        let pending: StreamPendingReply = self.redis().xpending(STREAM, GROUP).unwrap();
        let StreamPendingReply::Data(pending) = pending else { return 0 };
        let consumer = pending.consumers.iter().find(|consumer| consumer.name == name);
        consumer.map_or(0, |consumer| consumer.pending)
    }

    /// The ids of the messages that were set aside.
    pub(super) fn set_aside(&self) -> BTreeSet<String> {
        let aside: StreamRangeReply = self.redis().xrange_all(ASIDE).unwrap();
        aside.ids.iter().filter_map(|entry| entry.get("id")).collect()
    }

    pub(super) fn texts(&self, query: &str) -> BTreeSet<String> {
        self.files.query_store(query).into_iter().collect()
    }

    pub(super) fn count(&self, query: &str) -> i64 {
        self.files.count_in_store(query)
    }
}

/// The outcomes of deliveries that consumers have written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) applied: usize,
    pub(super) replayed: usize,
    pub(super) left: usize,
}

impl Written {
    pub(super) fn add(&mut self, lines: &[String]) {
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        self.applied += count(": applied");
        self.replayed += count(": replayed");
        self.left += count(": left for a later delivery");
    }
}

/// A running consumer. It is killed when it is dropped.
pub(super) struct Consumer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Consumer {
    /// Starts a consumer and waits until it is ready.
    pub(super) fn start(setting: &Setting) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_stream-consumer"))
            .env("DATABASE_URL", &setting.database)
            .env("REDIS_URL", setting.server.url())
            .env("REDELIVER_AFTER_MS", REDELIVER_AFTER)
            .env("CLAIM", setting.claim)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let Some(Ok(ready)) = lines.next() else {
            // The reason is in the output of the test, on stderr.
            panic!("the consumer ended at its start: {}", child.wait().unwrap());
        };
        assert!(ready.contains("is ready"), "{ready}");
        Self { child, lines }
    }

    /// The name that the consumer has in its group.
    pub(super) fn name(&self) -> String {
        self.child.id().to_string()
    }

    /// Sends SIGKILL, and returns all lines that the consumer has written.
    pub(super) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.by_ref().map_while(Result::ok).collect()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // The consumer may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
