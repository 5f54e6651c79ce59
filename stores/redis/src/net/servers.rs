//! Which server has a key.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, Weak,
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
    cluster::{ClusterView, SLOTS, slot},
    election::MasterElection,
    lock::lock,
    node::Node,
    requirements::Requirements,
};
use crate::error::{CallFailure, Redirect};

/// The servers of a store and of its clones.
pub(crate) struct Servers {
    address: Address,
    requirements: Arc<Requirements>,
    view: RwLock<View>,
    /// The epoch of the cluster's view.
    epoch: AtomicU64,
    nodes: Mutex<HashMap<Endpoint, Arc<Node>>>,
    /// Notified when the view may be out of date.
    outdated: Arc<Notify>,
    election: Mutex<MasterElection>,
    watchers: OnceLock<Vec<AbortHandle>>,
    runtimes: Mutex<HashSet<Id>>,
    /// Closed when the store is dropped, which ends its tasks on the runtimes.
    open: watch::Sender<()>,
}

/// Which server has which keys.
enum View {
    /// One server has all keys.
    One(Arc<Node>),
    /// The owner of each slot of a cluster.
    Slots(Vec<Option<Arc<Node>>>),
}

impl Servers {
    /// Servers of which none is known yet.
    pub(crate) fn new(address: Address) -> Self {
        let in_cluster = matches!(address, Address::Cluster(..));
        Self {
            address,
            requirements: Arc::new(Requirements::new(in_cluster)),
            view: RwLock::new(View::Slots(Vec::new())),
            epoch: AtomicU64::default(),
            nodes: Mutex::default(),
            outdated: Arc::default(),
            election: Mutex::default(),
            watchers: OnceLock::new(),
            runtimes: Mutex::default(),
            open: watch::Sender::new(()),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Sets the tasks that keep the view up to date; they end with the store.
    pub(crate) fn set_watchers(&self, watchers: Vec<AbortHandle>) {
        let _ = self.watchers.set(watchers);
    }

    /// Requests a new view, because a call has found the current one wrong.
    pub(crate) fn refresh(&self) {
        self.outdated.notify_waiters();
        self.outdated.notify_one();
    }

    pub(crate) fn outdated(&self) -> Arc<Notify> {
        self.outdated.clone()
    }

    /// Returns the server that has a key.
    pub(crate) fn node(&self, key: &[u8]) -> Result<Arc<Node>, CallFailure> {
        match &*self.view.read().unwrap_or_else(PoisonError::into_inner) {
            View::One(node) => Ok(node.clone()),
            View::Slots(slots) => {
                slots.get(usize::from(slot(key))).cloned().flatten().ok_or(CallFailure::NoMaster)
            }
        }
    }

    /// Returns each server that has keys.
    pub(crate) fn masters(&self) -> Vec<Arc<Node>> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).masters()
    }

    /// Returns the nodes from which to learn a cluster's slots: its masters and those in the URL.
    pub(crate) fn sources(&self) -> Vec<ConnectionInfo> {
        let mut sources: Vec<_> = self.masters().iter().map(|node| node.info().clone()).collect();
        if let Address::Cluster(_, seeds) = &self.address {
            sources.extend(seeds.iter().cloned());
        }
        let mut seen = HashSet::new();
        sources.retain(|source| seen.insert(endpoint(source)));
        sources
    }

    /// A number that changes with the servers, their order and the owners of the slots. The epoch
    /// alone does not show each move of a slot: a node that has the highest one keeps it.
    pub(crate) fn identity(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.epoch().hash(&mut hasher);
        for node in self.masters() {
            endpoint(node.info()).hash(&mut hasher);
            self.slots_of(&node).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The slots of a node, in order.
    pub(crate) fn slots_of(&self, node: &Arc<Node>) -> Vec<usize> {
        match &*self.view.read().unwrap_or_else(PoisonError::into_inner) {
            View::One(_) => Vec::new(),
            View::Slots(slots) => {
                let own = |owner: &Option<Arc<Node>>| {
                    owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, node))
                };
                slots.iter().enumerate().filter(|(_, owner)| own(owner)).map(|(at, _)| at).collect()
            }
        }
    }

    pub(crate) fn in_cluster(&self) -> bool {
        matches!(self.address, Address::Cluster(..))
    }

    /// Updates which node has which slots.
    pub(crate) fn set_slots(&self, view: &ClusterView) {
        let mut slots = vec![None; SLOTS];
        for (range, at) in &view.ranges {
            let node = self.at(at);
            slots
                .get_mut(range.clone())
                .into_iter()
                .flatten()
                .for_each(|slot| *slot = Some(node.clone()));
        }
        self.epoch.store(view.epoch, Ordering::Relaxed);
        self.replace(View::Slots(slots));
    }

    /// The epoch of the cluster's view.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Updates the Sentinels' reports, and switches to the master that they elect.
    pub(crate) fn update_election(&self, change: impl FnOnce(&mut MasterElection)) {
        let mut election = lock(&self.election);
        change(&mut election);
        if let Some(at) = election.next_master() {
            self.set_master(&at);
        }
    }

    /// Stops using the master if `suspends` returns true: its replica is being promoted, and what
    /// it acknowledges from now on is lost.
    pub(crate) fn suspend_if(&self, suspends: impl FnOnce(&mut MasterElection) -> bool) {
        let mut election = lock(&self.election);
        if suspends(&mut election) {
            self.replace(View::Slots(Vec::new()));
        }
    }

    pub(crate) fn set_master(&self, at: &Endpoint) {
        let node = self.at(at);
        self.replace(View::One(node));
    }

    /// Replaces the view and retires the servers that no longer have keys.
    fn replace(&self, view: View) {
        let mut present = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let new = view.masters();
        let old = std::mem::replace(&mut *present, view).masters();
        let has_keys = |node: &Arc<Node>| new.iter().any(|new| Arc::ptr_eq(node, new));
        old.iter().filter(|old| !has_keys(old)).for_each(|gone| gone.retire());
        drop(old);
        // Nodes that a redirect named are kept while they are in use.
        lock(&self.nodes).retain(|_, node| {
            has_keys(node) || (Arc::strong_count(node) > 1 && !node.is_retired())
        });
    }

    /// Applies a redirect. Returns the node for this one command (`ASK`) if the slot has not moved
    /// yet.
    pub(crate) fn apply_redirect(
        &self,
        key: &[u8],
        from: &Node,
        redirect: Redirect,
    ) -> Option<Arc<Node>> {
        self.refresh();
        let (Redirect::Moved(host, port) | Redirect::Ask(host, port)) = &redirect;
        // An empty host means the node that redirects.
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
        let new =
            || Arc::new(Node::new(info_at(self.address.template(), at), self.requirements.clone()));
        lock(&self.nodes).entry(at.clone()).or_insert_with(new).clone()
    }

    /// Closes the connections that a runtime drives when it ends.
    pub(crate) fn close_with(self: &Arc<Self>, runtime: &Handle) {
        if lock(&self.runtimes).insert(runtime.id()) {
            let guard = RuntimeGuard { servers: Arc::downgrade(self), runtime: runtime.id() };
            let mut open = self.open.subscribe();
            runtime.spawn(async move {
                let _guard = guard;
                // Ends when the store is dropped; the task itself is dropped with its runtime.
                let _ = open.changed().await;
            });
        }
    }
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
        // Slots of one node are usually adjacent.
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

/// Closes the connections of a runtime when it ends.
struct RuntimeGuard {
    servers: Weak<Servers>,
    runtime: Id,
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        let Some(servers) = self.servers.upgrade() else { return };
        lock(&servers.runtimes).remove(&self.runtime);
        let nodes: Vec<_> = lock(&servers.nodes).values().cloned().collect();
        nodes.iter().for_each(|node| node.close_connections_of(self.runtime));
    }
}
