//! Server processes that share a store, and a load on all of them.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{CONNECTIONS, Scale, Setup};
use crate::{
    environment::{Environment, StoreKind},
    load::{KeyPattern, Plan, Sample, Watched},
    server::{self, Program, Server},
};

/// How often the connections to the store are counted.
const INTERVAL: Duration = Duration::from_millis(200);

/// Running server processes.
pub(super) struct Fleet {
    servers: Vec<Server>,
    store: StoreKind,
}

impl Fleet {
    /// Starts the processes of a setup on an empty store.
    pub(super) fn start(scale: &Scale, store: StoreKind, setup: Setup) -> Self {
        let url = scale.environment.clean(store);
        let words = setup.words.iter().map(|word| (*word).to_owned()).collect();
        let program = Program::BuiltIn(None, words);
        let servers = (0..setup.processes).map(|_| Server::start_unpinned(&program, &url));
        Self { servers: servers.collect(), store }
    }

    /// Runs a load of new keys on all processes. Returns its sample, and the largest number of
    /// connections to the store.
    pub(super) fn load(&self, scale: &Scale) -> (Sample, i64) {
        let load = server::start_load(&Plan {
            to: self.servers.iter().map(|server| server.at).collect(),
            separate_principals: true,
            connections: CONNECTIONS * self.servers.len(),
            warmup: scale.warmup,
            duration: scale.seconds,
            watched: self.watched(&scale.environment),
            ..Plan::new(self.servers[0].at, KeyPattern::Fresh)
        });
        let (started, mut most) = (Instant::now(), 0);
        while started.elapsed() + 2 * INTERVAL < scale.warmup + scale.seconds {
            thread::sleep(INTERVAL);
            most = most.max(self.connections(&scale.environment));
        }
        (server::finish(load), most)
    }

    fn watched(&self, environment: &Environment) -> Watched {
        let servers = self.servers.iter().map(|server| ("server".to_owned(), server.process()));
        let store = environment.process(self.store).map(|process| ("store".to_owned(), process));
        Watched(servers.chain(store).collect())
    }

    /// The connections to the store, without that of this program.
    fn connections(&self, environment: &Environment) -> i64 {
        if self.store == StoreKind::Postgres {
            let sessions = "SELECT count(*) FROM pg_stat_activity \
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            return environment.postgres().number(environment, sessions);
        }
        let clients = environment.redis().info("connected_clients").unwrap();
        clients.parse::<i64>().unwrap() - 1
    }
}
