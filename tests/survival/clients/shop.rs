//! The shop as a process, and the services that it needs.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use test_support::unreliable::Unreliable;

use super::FAULTS;
use crate::{
    payments::server::{Payments, await_that, change, count_in},
    results::is_long_run,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_chain-service");
/// The seed of everything that is random here. What the processes do is not.
const SEED: u64 = 15;
/// How long a whole run may take.
const LIMIT: Duration = Duration::from_secs(600);

/// A server that is killed and started again, behind an unreliable proxy. Clones share it.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) proxy: Unreliable,
    running: Arc<Mutex<Option<Payments>>>,
    start: Arc<dyn Fn() -> Payments>,
}

impl Service {
    /// A service of the chain.
    pub(super) fn new(name: &'static str, file: &Path, next: Option<SocketAddr>) -> Self {
        let file = file.to_owned();
        Self::with(move || {
            let mut command = Command::new(PROGRAM);
            command.args([name, "--listen", "127.0.0.1:0", "--file"]).arg(&file);
            command.args(next.map(|next| format!("--next=http://{next}")));
            Payments::run(&mut command)
        })
    }

    pub(super) fn with(start: impl Fn() -> Payments + 'static) -> Self {
        let running = start();
        let proxy = Unreliable::in_front_of(running.address, SEED, FAULTS);
        Self { proxy, running: Arc::new(Mutex::new(Some(running))), start: Arc::new(start) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address
    }

    /// Kills the server, and starts it again after a while.
    fn kill(&self, pause: Duration) {
        let mut running = self.running.lock().unwrap();
        // Killed when it is dropped.
        *running = None;
        thread::sleep(pause);
        let server = (self.start)();
        self.proxy.set_target(server.address);
        *running = Some(server);
    }

    /// Waits until the proxy has forwarded all it has.
    pub(super) fn let_late_requests_end(&self) {
        await_that(|| self.proxy.is_idle(), "the late requests end");
    }
}

/// How often processes were killed.
#[derive(Debug, Default)]
pub(super) struct Kills {
    pub(super) client: u32,
    pub(super) servers: u32,
}

/// The shop, which is started until every order is confirmed.
pub(super) struct Shop {
    pub(super) orders: u32,
    /// Whether the pending operations are lost with each kill.
    pub(super) forgets_pending: bool,
    file: PathBuf,
    api: &'static str,
    server: SocketAddr,
}

impl Shop {
    pub(super) fn new(directory: &Path, api: &'static str, server: SocketAddr) -> Self {
        let orders = if is_long_run() { 5000 } else { 300 };
        Self { orders, forgets_pending: false, file: directory.join("shop.db"), api, server }
    }

    /// Runs the shop until every order is confirmed. Kills the shop and a service in turn, at
    /// random times, and at the end no more.
    pub(super) fn run(&mut self, services: &mut [Service]) -> Kills {
        let mut random = fastrand::Rng::with_seed(SEED);
        let (mut kills, started) = (Kills::default(), Instant::now());
        let most = self.orders / 20;
        let mut next_kill = Instant::now() + Duration::from_millis(random.u64(10..300));
        while !self.run_once(|shop| {
            assert!(started.elapsed() < LIMIT, "{kills:?}");
            let now = Instant::now();
            if now < next_kill || kills.client + kills.servers >= 2 * most {
                return;
            }
            if kills.client <= kills.servers {
                kills.client += 1;
                shop.kill().unwrap();
                shop.wait().unwrap();
                // It may have been killed before it created the table.
                let table = "SELECT count(*) FROM sqlite_master WHERE name = 'idempotent_pending'";
                if self.forgets_pending && self.file.exists() && count_in(&self.file, table) > 0 {
                    change(&self.file, "DELETE FROM idempotent_pending");
                }
            } else {
                kills.servers += 1;
                let pause = Duration::from_millis(random.u64(0..300));
                random.choice(&*services).unwrap().kill(pause);
            }
            next_kill = Instant::now() + Duration::from_millis(random.u64(10..300));
        }) {}
        services.iter().for_each(Service::let_late_requests_end);
        kills
    }

    /// Starts the shop, and calls a function until it ends. Returns whether every order is
    /// confirmed.
    fn run_once(&self, mut meanwhile: impl FnMut(&mut Child)) -> bool {
        let mut shop = Command::new(PROGRAM)
            .args(["shop", "--api", self.api, "--orders", &self.orders.to_string()])
            .arg(format!("--server=http://{}", self.server))
            .arg("--file")
            .arg(&self.file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        loop {
            if let Some(status) = shop.try_wait().unwrap() {
                return status.success();
            }
            meanwhile(&mut shop);
            thread::sleep(Duration::from_millis(5));
        }
    }
}
