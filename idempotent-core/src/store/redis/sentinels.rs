//! Sentinels, and the master that they name.

use std::{collections::HashMap, sync::Weak, time::Duration};

use futures_util::future::join_all;
use redis::{ConnectionInfo, PushInfo, PushKind, Value, aio::MultiplexedConnection, from_redis_value};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep, timeout},
};

use super::{
    address::{Endpoint, Sentinels, connect},
    error::Failure,
    servers::Servers,
};

/// How long a Sentinel may take to respond.
const RESPONDING: Duration = Duration::from_secs(1);
/// How often each Sentinel is asked, besides what it publishes.
const POLL: Duration = Duration::from_secs(1);
/// How long the word of a Sentinel counts that does not respond any more. It may be the only one
/// that knows of a failover: the others learn of it within seconds.
const COUNTING: Duration = Duration::from_secs(10);
/// How long no master is used once a replica is being promoted. By then a Sentinel names it, or the
/// failover came to nothing.
const HOLD: Duration = Duration::from_secs(5);
/// Published by the Sentinel that leads a failover, just before it promotes a replica. It names the
/// new master only a second later; what the old one acknowledges meanwhile is lost.
const PROMOTING: &str = "+failover-state-send-slaveof-noone";
/// What a Sentinel publishes when it names another master: the one that leads the failover first,
/// the others when they learn of it.
const CHANNELS: [&str; 3] = [PROMOTING, "+promoted-slave", "+switch-master"];

/// What one Sentinel said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// The number of the configuration. Each failover has a higher one.
    epoch: u64,
    master: Endpoint,
}

/// What the Sentinels said last, and which master is followed.
#[derive(Clone, Default)]
pub(super) struct Sightings {
    last: Vec<Option<Sighting>>,
    followed: Option<Sighting>,
    /// Until when no master is used.
    held: Option<Instant>,
}

impl Sightings {
    /// The master to use from now on, if that changes.
    pub(super) fn elect(&mut self) -> Option<Endpoint> {
        let resumed = self.held.take_if(|until| *until <= Instant::now()).is_some();
        let moved = self.moved();
        if moved.is_some() {
            self.held = None;
        }
        moved.or_else(|| self.followed.as_ref().filter(|_| resumed).map(|followed| followed.master.clone()))
    }

    /// The master that the Sentinels name now, unless it is followed already.
    ///
    /// The newest configuration counts. One that is older than what is followed does only if most
    /// Sentinels name it: it may be that of a Sentinel that was cut off, or the Sentinels were set
    /// up anew.
    fn moved(&mut self) -> Option<Endpoint> {
        let newest = self.last.iter().flatten().max_by_key(|sighting| sighting.epoch)?;
        if let Some(followed) = &self.followed {
            let agreeing = self.last.iter().flatten().filter(|sighting| sighting.master == newest.master).count();
            let older = newest.epoch < followed.epoch && agreeing * 2 <= self.last.len();
            if older || (newest.epoch == followed.epoch && self.last.iter().flatten().any(|last| last == followed)) {
                return None;
            }
        }
        let moved = self.followed.as_ref().is_none_or(|followed| followed.master != newest.master);
        self.followed = Some(newest.clone());
        moved.then(|| newest.master.clone())
    }

    /// Uses no master until another is named, or some seconds have passed.
    pub(super) fn hold(&mut self) {
        self.held = Some(Instant::now() + HOLD);
    }

    fn set(&mut self, number: usize, sighting: Option<Sighting>) {
        if let Some(last) = self.last.get_mut(number) {
            *last = sighting;
        }
    }
}

/// Asks all Sentinels, so that one that is out of date does not count.
pub(super) async fn discover(sentinels: &Sentinels) -> Result<Sightings, Failure> {
    let asked = sentinels.hosts.iter().map(|host| async {
        let ask = async { ask(&mut connect(host, None, RESPONDING).await?, &sentinels.service).await };
        timeout(RESPONDING, ask).await.unwrap_or(Err(Failure::Slow))
    });
    let (mut last, mut failed) = (Vec::new(), Failure::NoMaster);
    for sighted in join_all(asked).await {
        last.push(sighted.map_err(|failure| failed = failure).ok());
    }
    if last.iter().all(Option::is_none) { Err(failed) } else { Ok(Sightings { last, ..Sightings::default() }) }
}

/// Follows one Sentinel until the store is dropped.
pub(super) async fn watch(servers: Weak<Servers>, sentinels: Sentinels, number: usize) {
    let Some(host) = sentinels.hosts.get(number) else { return };
    let mut seen = Instant::now();
    loop {
        let ended = follow(&servers, host, &sentinels.service, (number, &mut seen)).await;
        let Some(servers) = servers.upgrade() else { return };
        if let Err(failure) = ended {
            tracing::debug!(error = %failure, "a Sentinel did not respond; retrying");
        }
        if seen.elapsed() > COUNTING {
            servers.sight(|sightings| sightings.set(number, None));
        }
        drop(servers);
        sleep(POLL.mul_f64(0.25 + fastrand::f64() / 2.0)).await;
    }
}

/// Asks a Sentinel each second, and at once when it names another master or the store loses its
/// own.
async fn follow(
    servers: &Weak<Servers>,
    host: &ConnectionInfo,
    service: &str,
    (number, seen): (usize, &mut Instant),
) -> Result<(), Failure> {
    let (sender, mut published) = unbounded_channel();
    let late = |_| Failure::Slow;
    let mut sentinel = timeout(RESPONDING, connect(host, Some(sender), RESPONDING)).await.map_err(late)??;
    // A Sentinel that allows no subscription is still asked.
    let _ = timeout(RESPONDING, sentinel.subscribe(&CHANNELS[..])).await.map_err(late)?;
    let Some(stale) = servers.upgrade().map(|servers| servers.stale()) else { return Ok(()) };
    loop {
        let stale = stale.notified();
        let sighting = timeout(RESPONDING, ask(&mut sentinel, service)).await.map_err(late)??;
        let Some(alive) = servers.upgrade() else { return Ok(()) };
        alive.sight(|sightings| sightings.set(number, Some(sighting)));
        drop(alive);
        *seen = Instant::now();
        tokio::select! {
            promoting = promoting(&mut published, service) => {
                if promoting?
                    && let Some(servers) = servers.upgrade()
                {
                    servers.hold();
                }
            }
            () = sleep(POLL.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = stale => sleep(RESPONDING / 10).await,
        }
    }
}

/// Waits until the Sentinel publishes something, and returns whether the master's replica is being
/// promoted.
async fn promoting(published: &mut UnboundedReceiver<PushInfo>, service: &str) -> Result<bool, Failure> {
    loop {
        let news = published.recv().await.ok_or(Failure::Left)?;
        match (news.kind, <[Value; 2]>::try_from(news.data)) {
            (PushKind::Message, Ok([channel, replica])) => {
                let [channel, replica] = [channel, replica].map(from_redis_value::<String>);
                // `slave <name> <host> <port> @ <service> <host> <port>`
                let ours = replica.is_ok_and(|replica| replica.split(' ').any(|word| word == service));
                return Ok(ours && channel.is_ok_and(|channel| channel == PROMOTING));
            }
            (PushKind::Disconnection, _) => return Err(Failure::Left),
            _ => {}
        }
    }
}

/// The master that a Sentinel names. In the middle of a failover it names the new one while its
/// record of the old one is still there.
async fn ask(sentinel: &mut MultiplexedConnection, service: &str) -> Result<Sighting, Failure> {
    let mut both = redis::pipe();
    both.cmd("SENTINEL").arg("MASTER").arg(service);
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let (fields, master): (HashMap<String, String>, Option<Endpoint>) = both.query_async(sentinel).await?;
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).ok_or(Failure::Unexpected)?;
    Ok(Sighting { epoch, master: master.ok_or(Failure::NoMaster)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        (host.to_owned(), 6379)
    }

    #[test]
    fn the_newest_configuration_is_followed() {
        let said = |epoch, host| Some(Sighting { epoch, master: at(host) });
        let mut sightings = Sightings { last: vec![said(1, "a"), None, said(1, "a")], ..Sightings::default() };
        assert_eq!(sightings.elect(), Some(at("a")));
        assert_eq!(sightings.elect(), None);
        // One leads the failover; the others follow.
        sightings.set(1, said(2, "b"));
        assert_eq!(sightings.elect(), Some(at("b")));
        assert_eq!(sightings.elect(), None);
        sightings.set(1, None);
        assert_eq!(sightings.elect(), Some(at("a")), "most of them name it");
        sightings.last = vec![said(1, "a"), said(3, "b"), None];
        assert_eq!(sightings.elect(), Some(at("b")));
        sightings.last = vec![said(1, "a"), None, None];
        assert_eq!(sightings.elect(), None, "one that was cut off");
        sightings.last = vec![said(0, "c"), said(0, "c"), None];
        assert_eq!(sightings.elect(), Some(at("c")), "set up anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failover_that_comes_to_nothing_ends_the_hold() {
        let said = |epoch, host| Some(Sighting { epoch, master: at(host) });
        let mut sightings = Sightings { last: vec![said(1, "a")], ..Sightings::default() };
        assert_eq!(sightings.elect(), Some(at("a")));
        sightings.hold();
        assert_eq!(sightings.elect(), None);
        tokio::time::advance(HOLD).await;
        assert_eq!(sightings.elect(), Some(at("a")));
        assert_eq!(sightings.elect(), None);
        sightings.hold();
        sightings.last = vec![said(2, "b")];
        assert_eq!(sightings.elect(), Some(at("b")));
        tokio::time::advance(HOLD).await;
        assert_eq!(sightings.elect(), None);
    }
}
