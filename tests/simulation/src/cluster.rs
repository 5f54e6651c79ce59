//! The processes that share the database, and what happens to them.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_web::HttpResponse;
use idempotent_actix::{internals, recording, store::Actor};
use idempotent_core::internals::Gauges;
use tokio::{task::spawn_local, time::sleep};

use crate::{
    database::Database,
    operation::{Handler, Key, Receipt},
    process::Process,
    release::Release,
    world::{World, chance, millis, one_of},
};

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    pub(crate) database: Arc<Database>,
    processes: RefCell<Vec<Rc<Process>>>,
    faults: u32,
    started: Cell<usize>,
}

impl Cluster {
    /// Starts one to three processes.
    pub(crate) fn start(world: Arc<World>, database: Arc<Database>) -> Rc<Self> {
        let faults = one_of(&[0, 5, 15, 40]);
        let cluster =
            Self { world, database, processes: RefCell::default(), faults, started: Cell::new(0) };
        for _ in 0..fastrand::u32(1..=3) {
            cluster.add_process();
        }
        Rc::new(cluster)
    }

    fn add_process(&self) {
        self.started.set(self.started.get() + 1);
        let release = Release::random(self.faults);
        let process = Process::start(&self.world, &self.database, self.started.get(), &release);
        self.processes.borrow_mut().push(process);
    }

    pub(crate) fn any_process(&self) -> Option<Rc<Process>> {
        let processes = self.processes.borrow();
        (!processes.is_empty()).then(|| processes[fastrand::usize(0..processes.len())].clone())
    }

    pub(crate) fn processes(&self) -> Vec<Rc<Process>> {
        self.processes.borrow().clone()
    }

    /// Lets something happen, now and then, for this long.
    pub(crate) async fn disturb(self: Rc<Self>, time: Duration) {
        while self.world.elapsed() < time {
            sleep(millis(100, 8_000)).await;
            match fastrand::u32(0..10) {
                0..2 => self.crash_one(),
                2..4 => self.pause_one(),
                4..6 => self.cut_off_one(),
                6..8 => self.step_clock(),
                _ => self.resolve_one().await,
            }
        }
    }

    /// A process crashes; another one, perhaps of another release, starts a while later.
    fn crash_one(self: &Rc<Self>) {
        let mut processes = self.processes.borrow_mut();
        if processes.is_empty() {
            return;
        }
        let index = fastrand::usize(0..processes.len());
        let process = processes.remove(index);
        drop(processes);
        process.crash();
        let cluster = self.clone();
        spawn_local(async move {
            sleep(millis(0, 10_000)).await;
            cluster.add_process();
        });
    }

    fn pause_one(&self) {
        let Some(process) = self.any_process() else { return };
        process.pause();
        spawn_local(async move {
            let pause = if chance(50) { millis(10, 3_000) } else { millis(3_000, 60_000) };
            sleep(pause).await;
            process.resume();
        });
    }

    fn cut_off_one(&self) {
        let Some(process) = self.any_process() else { return };
        self.world.trace(|| format!("network: process {} is cut off", process.number));
        process.store.cut_off(true);
        let world = self.world.clone();
        spawn_local(async move {
            sleep(millis(100, 40_000)).await;
            process.store.cut_off(false);
            world.trace(|| format!("network: process {} is connected again", process.number));
        });
    }

    fn step_clock(&self) {
        let by = one_of(&[100, 3_000, 30_000, 3_600_000, 100_000_000]);
        self.database.step_clock(if chance(50) { by } else { -by });
    }

    /// An operator looks at a key, and resolves it a while later.
    async fn resolve_one(&self) {
        let (Some(process), records) = (self.any_process(), self.database.records()) else {
            return;
        };
        if records.is_empty() {
            return;
        }
        let (id, _) = records[fastrand::usize(0..records.len())];
        let recording = match chance(50) {
            true => {
                let receipt = Receipt { run: 0, user: 0, key: 0, payload: 0, done: true };
                let response = receipt.send(&mut HttpResponse::Created());
                recording::from_response(response).await.ok()
            }
            false => None,
        };
        let world = self.world.clone();
        spawn_local(async move {
            let Ok(Some(seen)) = process.idempotency.find_record(&id).await else { return };
            if !seen.record.is_held(seen.at) {
                return;
            }
            sleep(millis(0, 2_000)).await;
            let actor = Actor::default();
            let resolved =
                process.idempotency.resolve(&id, &seen, recording.as_ref(), &actor).await;
            world.trace(|| format!("operator: {resolved:?}"));
        });
    }

    /// Ends all faults and brings all processes back.
    pub(crate) async fn calm(&self) {
        self.world.trace(|| "all faults end".to_owned());
        self.world.calm();
        for process in self.processes() {
            process.resume();
            process.store.cut_off(false);
        }
        // What was delayed arrives, and what was scheduled happens.
        sleep(Duration::from_secs(100)).await;
        for process in self.processes() {
            process.resume();
            process.store.cut_off(false);
        }
        if self.processes().is_empty() {
            self.add_process();
        }
    }

    /// Verifies that no process keeps anything of operations that have ended.
    pub(crate) async fn verify_idle(&self) {
        for process in self.processes() {
            let drained = process.idempotency.drain(Duration::from_secs(120)).await;
            let gauges = internals::runtime_gauges(&process.idempotency);
            if !drained || gauges != Gauges::default() {
                self.world.oracle(|oracle| {
                    oracle.violated(format!("process {} is not idle: {gauges:?}", process.number));
                });
            }
        }
    }

    pub(crate) fn any_key(&self) -> Key {
        let handler = if self.database.has_transactions() {
            one_of(&[Handler::Lease, Handler::TxLease, Handler::TxClaim])
        } else {
            Handler::Lease
        };
        Key { handler, user: fastrand::u8(1..=2), key: fastrand::u8(1..=2) }
    }
}
