//! Finds the servers at an address, and follows their changes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    address::{Address, endpoint},
    cluster, sentinels,
    servers::Servers,
    watch_thread::watch_thread,
};
use crate::error::CallFailure;

/// How often the slots are looked up when no call has requested it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The minimum time between two lookups.
const MIN_PAUSE: Duration = Duration::from_millis(400);

/// Finds the servers, and follows their changes from then on.
pub(crate) async fn find(address: Address) -> Result<Arc<Servers>, CallFailure> {
    let servers = Arc::new(Servers::new(address));
    match servers.address() {
        Address::Server(server) => servers.set_master(&endpoint(server)),
        Address::Sentinels(sentinels) => {
            let election = sentinels::discover(sentinels).await?;
            servers.update_election(|known| *known = election);
        }
        Address::Cluster(_, seeds) => {
            servers.set_slots(&cluster::discover(seeds.clone(), None).await?);
        }
    }
    watch(&servers)?;
    Ok(servers)
}

/// Starts the tasks that follow the changes of the servers.
fn watch(servers: &Arc<Servers>) -> Result<(), CallFailure> {
    let watchers = match servers.address() {
        Address::Server(_) => Vec::new(),
        Address::Sentinels(sentinels) => {
            let thread = watch_thread()?;
            let watch =
                |number| sentinels::watch(Arc::downgrade(servers), (**sentinels).clone(), number);
            (0..sentinels.hosts.len())
                .map(|number| thread.spawn(watch(number)).abort_handle())
                .collect()
        }
        Address::Cluster(..) => {
            let watching = watch_thread()?.spawn(watch_cluster(Arc::downgrade(servers)));
            vec![watching.abort_handle()]
        }
    };
    servers.set_watchers(watchers);
    Ok(())
}

/// Looks up which node of the cluster has which slots.
pub(crate) async fn update_slots(servers: &Servers) -> Result<(), CallFailure> {
    let view = cluster::discover(servers.sources(), Some(servers.epoch())).await?;
    servers.set_slots(&view);
    Ok(())
}

/// Keeps the store's view of the cluster up to date until the store is dropped.
async fn watch_cluster(servers: Weak<Servers>) {
    let Some(outdated) = servers.upgrade().map(|servers| servers.outdated()) else { return };
    loop {
        let _ = timeout(REFRESH_INTERVAL.mul_f64(0.5 + fastrand::f64()), outdated.notified()).await;
        let Some((sources, epoch)) =
            servers.upgrade().map(|servers| (servers.sources(), servers.epoch()))
        else {
            return;
        };
        match cluster::discover(sources, Some(epoch)).await {
            Ok(view) => {
                let Some(servers) = servers.upgrade() else { return };
                servers.set_slots(&view);
            }
            Err(failure) => {
                tracing::debug!(
                    error = %failure,
                    "no node of the cluster reported its slots; retrying"
                );
                outdated.notify_one();
            }
        }
        sleep(MIN_PAUSE.mul_f64(0.5 + fastrand::f64())).await;
    }
}
