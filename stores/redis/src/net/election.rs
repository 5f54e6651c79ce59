//! Decides which master to use from the reports of the Sentinels.

use std::time::Duration;

use tokio::time::Instant;

use super::address::Endpoint;

/// How long no master is used after a promotion was announced, and after each report of a failover
/// that is still in progress. By then a Sentinel names the new master, or the failover was aborted.
const SUSPENSION: Duration = Duration::from_secs(5);

/// The last report of one Sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MasterReport {
    /// The number of the configuration, which each failover increases.
    pub(crate) epoch: u64,
    pub(crate) master: Endpoint,
}

/// Whether a Sentinel is replacing the master that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failover {
    None,
    /// The Sentinel has yet to be elected, so the failover may be aborted.
    InProgress,
    /// An operator has ordered the failover. What the master acknowledges from now on is lost.
    Planned,
}

/// The last report of each Sentinel, and the master that the store uses.
#[derive(Clone, Default)]
pub(crate) struct MasterElection {
    reports: Vec<Option<MasterReport>>,
    followed: Option<MasterReport>,
    /// Until when no master is used.
    suspended: Option<Instant>,
}

impl MasterElection {
    pub(crate) fn new(reports: Vec<Option<MasterReport>>) -> Self {
        Self { reports, ..Self::default() }
    }

    /// Returns the master to use from now on, if it has changed or a suspension has ended.
    pub(crate) fn next_master(&mut self) -> Option<Endpoint> {
        let resumed = self.suspended.take_if(|until| *until <= Instant::now()).is_some();
        let changed_master = self.changed_master();
        if changed_master.is_some() {
            self.suspended = None;
        }
        changed_master.or_else(|| {
            self.followed.as_ref().filter(|_| resumed).map(|followed| followed.master.clone())
        })
    }

    /// Returns the master that the Sentinels name, if it is not the followed one.
    ///
    /// The newest configuration counts. One that is older than the followed configuration counts
    /// only if a majority of the Sentinels report it: a single Sentinel may have been cut off,
    /// while a majority means that the Sentinels were configured anew.
    fn changed_master(&mut self) -> Option<Endpoint> {
        let newest = self.reports.iter().flatten().max_by_key(|report| report.epoch)?;
        if let Some(followed) = &self.followed {
            let agreeing = self
                .reports
                .iter()
                .flatten()
                .filter(|report| report.master == newest.master)
                .count();
            let older = newest.epoch < followed.epoch && agreeing * 2 <= self.reports.len();
            if older
                || (newest.epoch == followed.epoch
                    && self.reports.iter().flatten().any(|report| report == followed))
            {
                return None;
            }
        }
        let changed_master =
            self.followed.as_ref().is_none_or(|followed| followed.master != newest.master);
        self.followed = Some(newest.clone());
        changed_master.then(|| newest.master.clone())
    }

    /// Suspends the use of any master until another is named, or for [`SUSPENSION`].
    fn suspend(&mut self) {
        self.suspended = Some(Instant::now() + SUSPENSION);
    }

    /// Suspends the use of this master if it is the followed one, and returns whether it was. An
    /// announcement may be read when the new master is followed already.
    pub(crate) fn suspend_if_followed(&mut self, master: &Endpoint) -> bool {
        let followed = self.followed.as_ref().is_some_and(|followed| followed.master == *master);
        if followed {
            self.suspend();
        }
        followed
    }

    /// Suspends the use of the followed master while its failover lasts, since the replica may be
    /// slow. Returns whether the suspension begins now.
    pub(crate) fn suspend_during(&mut self, report: &MasterReport, failover: Failover) -> bool {
        let suspended = self.suspended.is_some();
        let lasts =
            failover == Failover::Planned || (failover == Failover::InProgress && suspended);
        lasts && self.suspend_if_followed(&report.master) && !suspended
    }

    pub(crate) fn set(&mut self, number: usize, report: Option<MasterReport>) {
        if let Some(last) = self.reports.get_mut(number) {
            *last = report;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        (host.to_owned(), 6379)
    }

    #[test]
    fn the_newest_configuration_is_followed() {
        let report = |epoch, host| Some(MasterReport { epoch, master: at(host) });
        let mut election = MasterElection {
            reports: vec![report(1, "a"), None, report(1, "a")],
            ..MasterElection::default()
        };
        assert_eq!(election.next_master(), Some(at("a")));
        assert_eq!(election.next_master(), None);
        // One Sentinel leads the failover; the others follow.
        election.set(1, report(2, "b"));
        assert_eq!(election.next_master(), Some(at("b")));
        assert_eq!(election.next_master(), None);
        election.set(1, None);
        assert_eq!(election.next_master(), Some(at("a")), "most of them name it");
        election.reports = vec![report(1, "a"), report(3, "b"), None];
        assert_eq!(election.next_master(), Some(at("b")));
        election.reports = vec![report(1, "a"), None, None];
        assert_eq!(election.next_master(), None, "one that was cut off");
        election.reports = vec![report(0, "c"), report(0, "c"), None];
        assert_eq!(election.next_master(), Some(at("c")), "set up anew");
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_followed_master_is_suspended() {
        let report = |epoch, host| MasterReport { epoch, master: at(host) };
        let mut election =
            MasterElection { reports: vec![Some(report(1, "a"))], ..MasterElection::default() };
        assert_eq!(election.next_master(), Some(at("a")));
        assert!(
            !election.suspend_during(&report(1, "a"), Failover::InProgress),
            "it may not be elected"
        );
        assert!(election.suspend_during(&report(1, "a"), Failover::Planned));
        tokio::time::advance(SUSPENSION - Duration::from_secs(1)).await;
        assert!(
            !election.suspend_during(&report(1, "a"), Failover::InProgress),
            "it is suspended already"
        );
        tokio::time::advance(SUSPENSION - Duration::from_secs(1)).await;
        assert_eq!(election.next_master(), None, "it takes long");
        election.reports = vec![Some(report(2, "b"))];
        assert_eq!(election.next_master(), Some(at("b")));
        assert!(!election.suspend_if_followed(&at("a")), "published before");
        assert!(
            !election.suspend_during(&report(1, "a"), Failover::Planned),
            "another Sentinel has not seen the end"
        );
        assert!(election.suspend_if_followed(&at("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_failover_ends_the_suspension() {
        let report = |epoch, host| Some(MasterReport { epoch, master: at(host) });
        let mut election =
            MasterElection { reports: vec![report(1, "a")], ..MasterElection::default() };
        assert_eq!(election.next_master(), Some(at("a")));
        election.suspend();
        assert_eq!(election.next_master(), None);
        tokio::time::advance(SUSPENSION).await;
        assert_eq!(election.next_master(), Some(at("a")));
        assert_eq!(election.next_master(), None);
        election.suspend();
        election.reports = vec![report(2, "b")];
        assert_eq!(election.next_master(), Some(at("b")));
        tokio::time::advance(SUSPENSION).await;
        assert_eq!(election.next_master(), None);
    }
}
