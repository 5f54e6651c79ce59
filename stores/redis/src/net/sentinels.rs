//! Sentinels, and the master that they name.

use std::{collections::HashMap, sync::Weak, time::Duration};

use futures_util::future::join_all;
use redis::{ConnectionInfo, PushInfo, PushKind, Value, from_redis_value};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, sleep},
};

use super::{
    address::{Endpoint, Sentinels},
    election::{Failover, MasterElection, MasterReport},
    servers::Servers,
    wire::Wire,
};
use crate::error::CallFailure;

/// How long a Sentinel may take to open a connection, and to respond while no byte arrives.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often each Sentinel is queried, in addition to its announcements.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last report of an unresponsive Sentinel counts. It may be the only one that knows
/// of a failover; the others learn of it within seconds.
const REPORT_VALIDITY: Duration = Duration::from_secs(10);
/// How long a store that is being opened waits for the end of a planned failover.
const FAILOVER_WAIT: Duration = Duration::from_secs(2);
/// The pause between two queries during that wait.
const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Published by the Sentinel that leads a failover, just before it promotes a replica. It names the
/// new master only a second later; what the old one acknowledges in between is lost.
const PROMOTING: &str = "+failover-state-send-slaveof-noone";
/// Announcements of a new master: first by the Sentinel that leads the failover, then by the others
/// when they learn of it.
const CHANNELS: [&str; 3] = [PROMOTING, "+promoted-slave", "+switch-master"];

/// Queries all Sentinels, so that a single outdated one does not decide. They are queried again
/// while one of them reports a planned failover.
pub(crate) async fn discover(sentinels: &Sentinels) -> Result<MasterElection, CallFailure> {
    let until = Instant::now() + FAILOVER_WAIT;
    loop {
        let (found, planned) = query_all(sentinels).await?;
        if !planned || Instant::now() >= until {
            return Ok(found);
        }
        sleep(MIN_PAUSE).await;
    }
}

/// Queries all Sentinels once; also returns whether one of them reports a planned failover.
async fn query_all(sentinels: &Sentinels) -> Result<(MasterElection, bool), CallFailure> {
    let queries = sentinels.hosts.iter().map(|host| async {
        query(&mut Wire::open(host, None, RESPONSE_TIMEOUT).await?, &sentinels.service).await
    });
    let (mut reports, mut failed, mut planned) = (Vec::new(), CallFailure::NoMaster, false);
    for reported in join_all(queries).await {
        planned |= matches!(reported, Ok((_, Failover::Planned)));
        reports.push(reported.map(|(report, _)| report).map_err(|failure| failed = failure).ok());
    }
    if reports.iter().all(Option::is_none) {
        return Err(failed);
    }
    Ok((MasterElection::new(reports), planned))
}

/// Follows one Sentinel until the store is dropped.
pub(crate) async fn watch(servers: Weak<Servers>, sentinels: Sentinels, number: usize) {
    let Some(host) = sentinels.hosts.get(number) else { return };
    let mut last_report = Instant::now();
    loop {
        let ended = follow(&servers, host, &sentinels.service, (number, &mut last_report)).await;
        let Some(servers) = servers.upgrade() else { return };
        if let Err(failure) = ended {
            tracing::debug!(error = %failure, "a Sentinel did not respond; retrying");
        }
        if last_report.elapsed() > REPORT_VALIDITY {
            servers.update_election(|election| election.set(number, None));
        }
        drop(servers);
        sleep(POLL_INTERVAL.mul_f64(0.25 + fastrand::f64() / 2.0)).await;
    }
}

/// Queries a Sentinel each second, and at once when it announces another master or the store loses
/// its master.
async fn follow(
    servers: &Weak<Servers>,
    host: &ConnectionInfo,
    service: &str,
    (number, last_report): (usize, &mut Instant),
) -> Result<(), CallFailure> {
    let (sender, mut published) = unbounded_channel();
    let mut sentinel = Wire::open(host, Some(sender), RESPONSE_TIMEOUT).await?;
    // A Sentinel that refuses the subscription is still queried.
    let Wire { commands, traffic, .. } = &mut sentinel;
    let subscribed = async { Ok(commands.subscribe(&CHANNELS[..]).await) };
    let _ = traffic.wait_for(subscribed, RESPONSE_TIMEOUT).await?;
    let Some(outdated) = servers.upgrade().map(|servers| servers.outdated()) else { return Ok(()) };
    loop {
        let outdated = outdated.notified();
        let (report, failover) = query(&mut sentinel, service).await?;
        let Some(alive) = servers.upgrade() else { return Ok(()) };
        alive.suspend_if(|election| election.suspend_during(&report, failover));
        alive.update_election(|election| election.set(number, Some(report)));
        drop(alive);
        *last_report = Instant::now();
        tokio::select! {
            old_master = next_promotion(&mut published, service) => {
                if let Some(old_master) = old_master?
                    && let Some(servers) = servers.upgrade()
                {
                    servers.suspend_if(|election| election.suspend_if_followed(&old_master));
                }
            }
            () = sleep(POLL_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
            () = outdated => sleep(RESPONSE_TIMEOUT / 10).await,
        }
    }
}

/// Waits for an announcement; returns the old master if the announcement is a promotion for this
/// service.
async fn next_promotion(
    published: &mut UnboundedReceiver<PushInfo>,
    service: &str,
) -> Result<Option<Endpoint>, CallFailure> {
    loop {
        let news = published.recv().await.ok_or(CallFailure::ConnectionClosed)?;
        match (news.kind, <[Value; 2]>::try_from(news.data)) {
            (PushKind::Message, Ok([channel, replica])) => {
                let [channel, replica] = [channel, replica].map(from_redis_value::<String>);
                let is_promotion = channel.is_ok_and(|channel| channel == PROMOTING);
                return Ok(replica
                    .ok()
                    .filter(|_| is_promotion)
                    .and_then(|replica| old_master(&replica, service)));
            }
            (PushKind::Disconnection, _) => return Err(CallFailure::ConnectionClosed),
            _ => {}
        }
    }
}

/// The old master in the announcement of a promotion, if it belongs to the service: `slave <name>
/// <host> <port> @ <service> <host> <port>`.
fn old_master(replica: &str, service: &str) -> Option<Endpoint> {
    let mut master = replica.rsplit_once(" @ ")?.1.split(' ');
    let (name, host, port) = (master.next()?, master.next()?, master.next()?);
    (name == service).then_some((host.to_owned(), port.parse().ok()?))
}

/// Returns the master that a Sentinel names, and whether it is replacing it. During a failover a
/// Sentinel already names the new master while its record of the old one still exists.
async fn query(
    sentinel: &mut Wire,
    service: &str,
) -> Result<(MasterReport, Failover), CallFailure> {
    let mut both = redis::pipe();
    both.cmd("SENTINEL").arg("MASTER").arg(service);
    both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let Wire { commands, traffic, .. } = sentinel;
    let reply = async { Ok(both.query_async(commands).await?) };
    let (fields, master): (HashMap<String, String>, Option<Endpoint>) =
        traffic.wait_for(reply, RESPONSE_TIMEOUT).await?;
    let epoch = fields
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok())
        .ok_or(CallFailure::Unexpected)?;
    let report = MasterReport { epoch, master: master.ok_or(CallFailure::NoMaster)? };
    let flagged =
        |flag| fields.get("flags").is_some_and(|flags| flags.split(',').any(|set| set == flag));
    let recorded = fields.get("port").is_some_and(|port| *port == report.master.1.to_string())
        && fields.get("ip").is_some_and(|ip| *ip == report.master.0);
    let failover = match (recorded && flagged("failover_in_progress"), flagged("force_failover")) {
        (false, _) => Failover::None,
        (true, false) => Failover::InProgress,
        (true, true) => Failover::Planned,
    };
    Ok((report, failover))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        (host.to_owned(), 6379)
    }

    #[test]
    fn the_old_master_of_a_promotion_is_parsed() {
        let replica = "slave 10.0.0.2:6379 10.0.0.2 6379 @ payments 10.0.0.1 6379";
        assert_eq!(old_master(replica, "payments"), Some(at("10.0.0.1")));
        assert_eq!(old_master(replica, "orders"), None);
        assert_eq!(old_master("slave 10.0.0.2:6379", "payments"), None);
    }
}
