//! Lets renewals go before takeovers.
//!
//! While one connection writes, no other can renew a lease, nor take a key over. When it has ended,
//! SQLite gives the lock to whichever connection asks first. A claimant that is faster than the
//! renewal would take the key of an owner that is alive.
//!
//! So a renewal that has to wait for the lock holds a shared lock of the operating system on a file
//! beside the database until it is done, and as long as anyone does, a claim treats an expired
//! lease as still running. The operating system releases the lock of a process that dies. None of
//! this is needed for safety: where the file cannot be locked, whoever is faster wins.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    clock::Timestamp,
    record::{Record, RecordState},
};

/// For how long after its end a lease is treated as running: a process that is stopped while its
/// renewal waits keeps the file locked.
const LONGEST: Duration = Duration::from_secs(60);
/// A renewal that failed, or was given up, is sent again a sixth of its lease later at most, and
/// counts as waiting for this long after that.
const SLACK: Duration = Duration::from_secs(1);
/// A claim has the file locked for a moment.
const TRIES: u32 = 50;
const BETWEEN_LOCKS: Duration = Duration::from_millis(1);
/// How often a claim must find the file locked before it takes a renewal to be waiting.
const LOOKS: u32 = 3;

/// The renewals of all processes that wait for the write lock of one database.
#[derive(Clone)]
pub(super) struct WaitingRenewals {
    file: Arc<Path>,
}

/// A renewal that waits. One that is dropped before it is done counts until it has been sent again.
pub(super) struct Waiting {
    file: Option<File>,
    sent_again: Duration,
}

impl WaitingRenewals {
    /// Of the database in this file, which is named as SQLite names it.
    pub(super) fn of(database: &str) -> Self {
        Self { file: PathBuf::from(format!("{database}-renewals")).into() }
    }

    /// Enters a renewal that waits, of leases of this length at most.
    pub(super) async fn enter(&self, lease: Duration) -> Waiting {
        let path = self.file.clone();
        let locked =
            spawn_blocking(move || lock_shared(&path)).await.unwrap_or_else(|lost| Err(io::Error::other(lost)));
        let file = locked.inspect_err(|error| {
            tracing::debug!(%error, "a renewal waits without having locked its file; a takeover may be faster");
        });
        Waiting { file: file.ok(), sent_again: (lease / 6).min(LONGEST) + SLACK }
    }

    /// The time at which a record that was read at `now` is judged: the last moment of its lease if
    /// its renewal may be waiting.
    pub(super) async fn time_of(&self, record: Option<&Record>, now: Timestamp) -> Timestamp {
        let Some(record) = record.filter(|record| expired_by_itself(record, now)) else {
            return now;
        };
        if now.since(record.lease_until) < LONGEST && self.any().await {
            Timestamp::from_millis(record.lease_until.as_millis().saturating_sub(1))
        } else {
            now
        }
    }

    async fn any(&self) -> bool {
        let file = self.file.clone();
        spawn_blocking(move || is_locked(&file)).await.unwrap_or(false)
    }
}

/// Whether an attempt's lease is over without its having been given up.
fn expired_by_itself(record: &Record, now: Timestamp) -> bool {
    record.state == RecordState::InFlight
        && record.lapsed(now)
        && record.lease_until > Timestamp::EPOCH
        && !record.lease.is_zero()
}

impl Waiting {
    /// The renewal is done.
    pub(super) fn done(mut self) {
        self.file = None;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let sent_again = self.sent_again;
            runtime.spawn(async move {
                tokio::time::sleep(sent_again).await;
                drop(file);
            });
        }
    }
}

/// Opens the file as it is; it may be another user's, who can only be read. A lock needs no more.
fn open(path: &Path) -> io::Result<File> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            OpenOptions::new().create(true).truncate(false).write(true).open(path)
        }
        opened => opened,
    }
}

fn lock_shared(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    for _ in 1..TRIES {
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_LOCKS),
            locked => return locked.map(|()| file).map_err(io::Error::from),
        }
    }
    file.try_lock_shared()?;
    Ok(file)
}

/// Whether any renewal waits. Without the file, none ever has.
fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| stays(|| matches!(file.try_lock(), Err(TryLockError::WouldBlock))))
}

/// Whether the file is locked each time. Another claim has it locked for a moment while it looks,
/// and a renewal for as long as it waits.
fn stays(mut locked: impl FnMut() -> bool) -> bool {
    for _ in 1..LOOKS {
        if !locked() {
            return false;
        }
        std::thread::sleep(BETWEEN_LOCKS);
    }
    locked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fingerprint::Fingerprint,
        lease::OwnerToken,
        policy::Abandoned,
        protocol::Claim,
        transition::{self, Change},
    };

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_failed_counts_as_waiting_until_it_is_sent_again() {
        let database = std::env::temp_dir().join(format!("idempotent-waiting-{}", std::process::id()));
        let renewals = WaitingRenewals::of(database.to_str().unwrap());
        let lease = Duration::from_secs(120);

        drop(renewals.enter(lease).await);
        tokio::time::sleep(lease / 6).await;
        assert!(renewals.any().await, "the lease is renewed every twenty seconds");
        tokio::time::sleep(SLACK + Duration::from_millis(1)).await;
        assert!(!renewals.any().await, "nothing is waiting any more");

        renewals.enter(lease).await.done();
        assert!(!renewals.any().await, "the renewal is done");
        std::fs::remove_file(&renewals.file).unwrap();
    }

    #[test]
    fn no_renewal_is_expected_of_a_lease_that_was_given_up_or_has_no_length() {
        let now = Timestamp::from_millis(1_000_000);
        let claim = |lease| Claim {
            fingerprint: Fingerprint::from_bytes([1; Fingerprint::BYTES]),
            owner: OwnerToken::from_bytes([1; 16]),
            lease,
            ttl: Duration::from_secs(60),
            abandoned: Abandoned::Retry,
            principal: None,
        };
        for (lease, given_up, expected) in [(1, false, true), (1, true, false), (0, false, false)] {
            let claim = claim(Duration::from_millis(lease));
            let Change::Put(mut record) = transition::claim(None, &claim, now).0 else { panic!("it is granted") };
            if given_up {
                let Change::Put(abandoned) = transition::abandon(Some(&record), claim.owner, Abandoned::Retry).0 else {
                    panic!("it is its owner's")
                };
                record = abandoned;
            }
            assert_eq!(expired_by_itself(&record, now.after(claim.lease)), expected, "{record:?}");
        }
    }

    #[test]
    fn another_claim_that_looks_is_no_waiting_renewal() {
        for (found, waits, looks) in [
            ([false, true, true], false, 1),
            ([true, false, true], false, 2),
            ([true, true, false], false, 3),
            ([true, true, true], true, 3),
        ] {
            let mut looked = 0;
            let locked = || {
                looked += 1;
                found[looked - 1]
            };
            assert_eq!((stays(locked), looked), (waits, looks), "{found:?}");
        }
    }
}
