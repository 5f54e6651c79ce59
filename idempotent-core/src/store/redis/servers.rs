//! Which server has a key, as the addresses of the store's URL know it.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use redis::ConnectionInfo;
use tokio::{
    runtime::{Handle, Id},
    sync::{Notify, watch},
    task::AbortHandle,
};

use super::{
    address::{Address, Endpoint, endpoint, info_at},
    cluster::{self, ClusterView, SLOTS, slot},
    driver::driver,
    error::{Failure, Redirect},
    node::Node,
    sentinels::{self, Sightings},
    server::Requirements,
};

/// The servers of a store and of its clones.
pub(super) struct Servers {
    address: Address,
    requirements: Arc<Requirements>,
    view: RwLock<View>,
    /// The epoch of a cluster's view.
    epoch: AtomicU64,
    nodes: Mutex<HashMap<Endpoint, Arc<Node>>>,
    /// Notified when the view may be out of date.
    stale: Arc<Notify>,
    sightings: Mutex<Sightings>,
    watchers: OnceLock<Vec<AbortHandle>>,
    runtimes: Mutex<HashSet<Id>>,
    /// Closed when the store is dropped; then the tasks of the runtimes end.
    open: watch::Sender<()>,
}

/// Who has which key.
enum View {
    /// One server has all.
    One(Arc<Node>),
    /// The owner of each slot of a cluster.
    Slots(Vec<Option<Arc<Node>>>),
}

impl Servers {
    /// Finds the servers, and follows their changes from then on.
    pub(super) async fn find(address: Address) -> Result<Arc<Self>, Failure> {
        let found = match &address {
            Address::Server(server) => Found::One(endpoint(server)),
            Address::Sentinels(sentinels) => Found::Master(sentinels::discover(sentinels).await?),
            Address::Cluster(_, seeds) => Found::Cluster(cluster::discover(seeds.clone(), None).await?),
        };
        let in_cluster = matches!(address, Address::Cluster(..));
        let servers = Self {
            address,
            requirements: Arc::new(Requirements::new(in_cluster)),
            view: RwLock::new(View::Slots(Vec::new())),
            epoch: AtomicU64::default(),
            nodes: Mutex::default(),
            stale: Arc::default(),
            sightings: Mutex::default(),
            watchers: OnceLock::new(),
            runtimes: Mutex::default(),
            open: watch::Sender::new(()),
        };
        match found {
            Found::One(at) => servers.install_one(&at),
            Found::Master(sightings) => servers.sight(|known| *known = sightings),
            Found::Cluster(view) => servers.install(&view),
        }
        let servers = Arc::new(servers);
        servers.watch()?;
        Ok(servers)
    }

    fn watch(self: &Arc<Self>) -> Result<(), Failure> {
        let watchers = match &self.address {
            Address::Server(_) => Vec::new(),
            Address::Sentinels(sentinels) => {
                let driver = driver()?;
                let watch = |number| sentinels::watch(Arc::downgrade(self), (**sentinels).clone(), number);
                (0..sentinels.hosts.len()).map(|number| driver.spawn(watch(number)).abort_handle()).collect()
            }
            Address::Cluster(..) => {
                let watching = driver()?.spawn(cluster::watch(Arc::downgrade(self)));
                vec![watching.abort_handle()]
            }
        };
        let _ = self.watchers.set(watchers);
        Ok(())
    }

    /// Requests a new view: a call has found that a server is not what the view says.
    pub(super) fn refresh(&self) {
        self.stale.notify_waiters();
        self.stale.notify_one();
    }

    pub(super) fn stale(&self) -> Arc<Notify> {
        self.stale.clone()
    }

    /// The server that has a key.
    pub(super) fn node(&self, key: &[u8]) -> Result<Arc<Node>, Failure> {
        match &*self.view.read().unwrap_or_else(PoisonError::into_inner) {
            View::One(node) => Ok(node.clone()),
            View::Slots(slots) => slots.get(usize::from(slot(key))).cloned().flatten().ok_or(Failure::NoMaster),
        }
    }

    /// Each server that has keys.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).masters()
    }

    /// Where to learn of a cluster's slots: its masters, and what the URL names.
    pub(super) fn sources(&self) -> Vec<ConnectionInfo> {
        let mut sources: Vec<_> = self.masters().iter().map(|node| node.info().clone()).collect();
        if let Address::Cluster(_, seeds) = &self.address {
            sources.extend(seeds.iter().cloned());
        }
        let mut seen = HashSet::new();
        sources.retain(|source| seen.insert(endpoint(source)));
        sources
    }

    pub(super) fn in_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(..))
    }

    /// Takes in which node has which slots.
    pub(super) fn install(&self, view: &ClusterView) {
        let mut slots = vec![None; SLOTS];
        for (range, at) in &view.ranges {
            let node = self.at(at);
            slots.get_mut(range.clone()).into_iter().flatten().for_each(|slot| *slot = Some(node.clone()));
        }
        self.epoch.store(view.epoch, Ordering::Relaxed);
        self.replace(View::Slots(slots));
    }

    /// The epoch of the cluster's view.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes in what the Sentinels say, and follows the master that they agree on.
    pub(super) fn sight(&self, change: impl FnOnce(&mut Sightings)) {
        let mut sightings = lock(&self.sightings);
        change(&mut sightings);
        if let Some(at) = sightings.elect() {
            self.install_one(&at);
        }
    }

    /// Leaves the master if it has to be: its replica is being promoted, and what it acknowledges
    /// now is lost.
    pub(super) fn hold_if(&self, held: impl FnOnce(&mut Sightings) -> bool) {
        let mut sightings = lock(&self.sightings);
        if held(&mut sightings) {
            self.replace(View::Slots(Vec::new()));
        }
    }

    fn install_one(&self, at: &Endpoint) {
        let node = self.at(at);
        self.replace(View::One(node));
    }

    /// Servers that had keys and have none now are not used any more.
    fn replace(&self, view: View) {
        let mut present = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let new = view.masters();
        let old = std::mem::replace(&mut *present, view).masters();
        let has_keys = |node: &Arc<Node>| new.iter().any(|new| Arc::ptr_eq(node, new));
        old.iter().filter(|old| !has_keys(old)).for_each(|gone| gone.retire());
        drop(old);
        // Nodes that a redirection named are kept while they are in use.
        lock(&self.nodes).retain(|_, node| has_keys(node) || (Arc::strong_count(node) > 1 && !node.is_retired()));
    }

    /// Takes in a redirection. The result is the node to send this one command to (`ASK`), if the
    /// slot has not moved yet.
    pub(super) fn redirected(&self, key: &[u8], from: &Node, redirect: Redirect) -> Option<Arc<Node>> {
        self.refresh();
        let (Redirect::Moved(host, port) | Redirect::Ask(host, port)) = &redirect;
        // An empty host is that of the node that redirects.
        let host = if host.is_empty() { endpoint(from.info()).0 } else { host.clone() };
        let node = self.at(&(host, *port));
        if let Redirect::Ask(..) = redirect {
            return Some(node);
        }
        if let View::Slots(slots) = &mut *self.view.write().unwrap_or_else(PoisonError::into_inner)
            && let Some(owner) = slots.get_mut(usize::from(slot(key)))
        {
            *owner = Some(node);
        }
        None
    }

    fn at(&self, at: &Endpoint) -> Arc<Node> {
        let new = || Arc::new(Node::new(info_at(self.address.template(), at), self.requirements.clone()));
        lock(&self.nodes).entry(at.clone()).or_insert_with(new).clone()
    }

    /// The present runtime. When it ends, its connections are closed.
    pub(super) fn runtime(self: &Arc<Self>) -> Result<Id, Failure> {
        let runtime = Handle::try_current().map_err(|_| Failure::NoRuntime)?;
        let id = runtime.id();
        if lock(&self.runtimes).insert(id) {
            let forget = Forget { servers: Arc::downgrade(self), runtime: id };
            let mut open = self.open.subscribe();
            runtime.spawn(async move {
                let _forget = forget;
                // It ends with an error when the store is dropped, and with its task when the
                // runtime is.
                let _ = open.changed().await;
            });
        }
        Ok(id)
    }
}

/// What the first look at the servers found.
enum Found {
    One(Endpoint),
    Master(Sightings),
    Cluster(ClusterView),
}

impl View {
    fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Slots(slots) => owners(slots),
        }
    }
}

fn owners(slots: &[Option<Arc<Node>>]) -> Vec<Arc<Node>> {
    let mut owners: Vec<Arc<Node>> = Vec::new();
    for node in slots.iter().flatten() {
        // Slots of one node follow each other.
        if !owners.last().is_some_and(|last| Arc::ptr_eq(last, node))
            && !owners.iter().any(|own| Arc::ptr_eq(own, node))
        {
            owners.push(node.clone());
        }
    }
    owners
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.watchers.get().into_iter().flatten().for_each(AbortHandle::abort);
    }
}

/// Closes the connections of a runtime that is gone.
struct Forget {
    servers: Weak<Servers>,
    runtime: Id,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let Some(servers) = self.servers.upgrade() else { return };
        lock(&servers.runtimes).remove(&self.runtime);
        let nodes: Vec<_> = lock(&servers.nodes).values().cloned().collect();
        nodes.iter().for_each(|node| node.forget(self.runtime));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
