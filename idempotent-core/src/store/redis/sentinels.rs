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
/// How long no master is used once a replica is being promoted, and after each look at a Sentinel
/// that is still at it. By then a Sentinel names it, or the failover came to nothing.
const HOLD: Duration = Duration::from_secs(5);
/// How long a store that is opened waits for the end of a planned failover.
const ENDING: Duration = Duration::from_secs(2);
/// The pause between two looks meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
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

/// Whether a Sentinel is replacing the master that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failover {
    No,
    /// It may fail: the Sentinel has yet to be elected.
    Admission,
    /// An operator has ordered it. What the master acknowledges from now on is lost.
    Planned,
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
    fn hold(&mut self) {
        self.held = Some(Instant::now() + HOLD);
    }

    /// Leaves this master if it is the one that is followed, and returns whether it was. A message
    /// may be read late, when the new master is followed already.
    fn leave(&mut self, master: &Endpoint) -> bool {
        let followed = self.followed.as_ref().is_some_and(|followed| followed.master == *master);
        if followed {
            self.hold();
        }
        followed
    }

    /// Uses no master while a failover from the followed one lasts: its replica may be slow.
    /// Returns whether the master is left now.
    fn hold_on(&mut self, sighting: &Sighting, failover: Failover) -> bool {
        let held = self.held.is_some();
        let lasts = failover == Failover::Planned || (failover == Failover::Admission && held);
        lasts && self.leave(&sighting.master) && !held
    }

    fn set(&mut self, number: usize, sighting: Option<Sighting>) {
        if let Some(last) = self.last.get_mut(number) {
            *last = sighting;
        }
    }
}

/// Asks all Sentinels, so that one that is out of date does not count. While one of them is in the
/// middle of a planned failover, they are asked again.
pub(super) async fn discover(sentinels: &Sentinels) -> Result<Sightings, Failure> {
    let until = Instant::now() + ENDING;
    loop {
        let (found, planned) = look(sentinels).await?;
        if !planned || Instant::now() >= until {
            return Ok(found);
        }
        sleep(PAUSE).await;
    }
}

/// What the Sentinels say, and whether one of them is leaving the master that it names.
async fn look(sentinels: &Sentinels) -> Result<(Sightings, bool), Failure> {
    let asked = sentinels.hosts.iter().map(|host| async {
        let ask = async { ask(&mut connect(host, None, RESPONDING).await?, &sentinels.service).await };
        timeout(RESPONDING, ask).await.unwrap_or(Err(Failure::Slow))
    });
    let (mut last, mut failed, mut planned) = (Vec::new(), Failure::NoMaster, false);
    for sighted in join_all(asked).await {
        planned |= matches!(sighted, Ok((_, Failover::Planned)));
        last.push(sighted.map(|(sighting, _)| sighting).map_err(|failure| failed = failure).ok());
    }
    if last.iter().all(Option::is_none) {
        return Err(failed);
    }
    Ok((Sightings { last, ..Sightings::default() }, planned))
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
        let (sighting, failover) = timeout(RESPONDING, ask(&mut sentinel, service)).await.map_err(late)??;
        let Some(alive) = servers.upgrade() else { return Ok(()) };
        alive.hold_if(|sightings| sightings.hold_on(&sighting, failover));
        alive.sight(|sightings| sightings.set(number, Some(sighting)));
        drop(alive);
        *seen = Instant::now();
        tokio::select! {
            promoting = promoting(&mut published, service) => {
                if let Some(left) = promoting?
                    && let Some(servers) = servers.upgrade()
                {
                    servers.hold_if(|sightings| sightings.leave(&left));
                }
            }
            () = sleep(POLL.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = stale => sleep(RESPONDING / 10).await,
        }
    }
}

/// Waits until the Sentinel publishes something, and returns the master whose replica is being
/// promoted, if that is it.
async fn promoting(published: &mut UnboundedReceiver<PushInfo>, service: &str) -> Result<Option<Endpoint>, Failure> {
    loop {
        let news = published.recv().await.ok_or(Failure::Left)?;
        match (news.kind, <[Value; 2]>::try_from(news.data)) {
            (PushKind::Message, Ok([channel, replica])) => {
                let [channel, replica] = [channel, replica].map(from_redis_value::<String>);
                let promoting = channel.is_ok_and(|channel| channel == PROMOTING);
                return Ok(replica.ok().filter(|_| promoting).and_then(|replica| left(&replica, service)));
            }
            (PushKind::Disconnection, _) => return Err(Failure::Left),
            _ => {}
        }
    }
}

/// The master of a replica that is being promoted, if it is the service's:
/// `slave <name> <host> <port> @ <service> <host> <port>`.
fn left(replica: &str, service: &str) -> Option<Endpoint> {
    let mut master = replica.rsplit_once(" @ ")?.1.split(' ');
    let (name, host, port) = (master.next()?, master.next()?, master.next()?);
    (name == service).then_some((host.to_owned(), port.parse().ok()?))
}

/// The master that a Sentinel names, and whether it is leaving it. In the middle of a failover it
/// names the new one while its record of the old one is still there.
async fn ask(sentinel: &mut MultiplexedConnection, service: &str) -> Result<(Sighting, Failover), Failure> {
    let mut both = redis::pipe();
    both.cmd("SENTINEL").arg("MASTER").arg(service);
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let (fields, master): (HashMap<String, String>, Option<Endpoint>) = both.query_async(sentinel).await?;
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).ok_or(Failure::Unexpected)?;
    let sighting = Sighting { epoch, master: master.ok_or(Failure::NoMaster)? };
    let flagged = |flag| fields.get("flags").is_some_and(|flags| flags.split(',').any(|set| set == flag));
    let recorded = fields.get("port").is_some_and(|port| *port == sighting.master.1.to_string())
        && fields.get("ip").is_some_and(|ip| *ip == sighting.master.0);
    let failover = match (recorded && flagged("failover_in_progress"), flagged("force_failover")) {
        (false, _) => Failover::No,
        (true, false) => Failover::Admission,
        (true, true) => Failover::Planned,
    };
    Ok((sighting, failover))
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

    #[test]
    fn the_master_that_is_left_is_read() {
        let replica = "slave 10.0.0.2:6379 10.0.0.2 6379 @ payments 10.0.0.1 6379";
        assert_eq!(left(replica, "payments"), Some(at("10.0.0.1")));
        assert_eq!(left(replica, "orders"), None);
        assert_eq!(left("slave 10.0.0.2:6379", "payments"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_followed_master_is_left() {
        let said = |epoch, host| Sighting { epoch, master: at(host) };
        let mut sightings = Sightings { last: vec![Some(said(1, "a"))], ..Sightings::default() };
        assert_eq!(sightings.elect(), Some(at("a")));
        assert!(!sightings.hold_on(&said(1, "a"), Failover::Admission), "it may not be elected");
        assert!(sightings.hold_on(&said(1, "a"), Failover::Planned));
        tokio::time::advance(HOLD - Duration::from_secs(1)).await;
        assert!(!sightings.hold_on(&said(1, "a"), Failover::Admission), "it is left already");
        tokio::time::advance(HOLD - Duration::from_secs(1)).await;
        assert_eq!(sightings.elect(), None, "it takes long");
        sightings.last = vec![Some(said(2, "b"))];
        assert_eq!(sightings.elect(), Some(at("b")));
        assert!(!sightings.leave(&at("a")), "published before");
        assert!(!sightings.hold_on(&said(1, "a"), Failover::Planned), "another Sentinel has not seen the end");
        assert!(sightings.leave(&at("b")));
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
