//! Gives the owners of leases precedence over takeovers.
//!
//! While one connection writes, no other connection can renew a lease, complete a key or take it
//! over. When that transaction ends, SQLite gives the lock to whichever connection asks first, so a
//! claim could take over the key of a live owner whose renewal or completion is waiting.
//!
//! An owner that has to wait for the write lock therefore holds a shared operating-system lock on a
//! file beside the database, and while any process holds it, claims treat an expired lease as
//! running. The operating system releases the locks of a process that dies. Safety does not depend
//! on this: where the file cannot be locked, the first writer wins.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

use crate::connect::connections::BUSY_TIMEOUT;
use idempotent_core::{Record, RecordState, StoreError, clock::Timestamp};

/// How long after its end a lease is still treated as running. A process that is stopped while it
/// waits as an owner keeps the file locked.
const MAX_EXTENSION: Duration = Duration::from_secs(60);
/// A write that failed or was dropped counts as waiting for this long after it is sent again.
const RESEND_MARGIN: Duration = Duration::from_secs(1);
/// Another claim locks the file only for a moment.
const TRIES: u32 = 50;
const BETWEEN_LOCKS: Duration = Duration::from_millis(1);
/// How often a claim must find the file locked before it concludes that an owner is waiting.
const LOOKS: u32 = 3;

/// The owners, of all processes, that wait for the write lock of one database.
#[derive(Clone)]
pub(crate) struct WaitingOwners {
    file: Arc<Path>,
}

/// A waiting renewal or completion. If it is dropped before it is done, it counts as waiting until
/// it has been sent again.
pub(crate) struct WaitingOwner {
    file: Option<File>,
    /// How long it counts as waiting after it was dropped.
    lingers: Duration,
}

impl WaitingOwners {
    /// The owners of the database at this path, as SQLite names it.
    pub(crate) fn of(database: &str) -> Self {
        Self { file: PathBuf::from(format!("{database}-renewals")).into() }
    }

    /// Executes a write that an owner sends again within `resent` if it fails. Once it has waited
    /// for the write lock for [`BUSY_TIMEOUT`], it is registered until it is done.
    pub(crate) async fn precede<T>(
        &self,
        resent: Duration,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut write = pin!(write);
        if let Ok(done) = timeout(BUSY_TIMEOUT, &mut write).await {
            return done;
        }
        let waiting = self.register(resent).await;
        let done = write.await;
        if done.is_ok() {
            waiting.done();
        }
        done
    }

    /// Registers a waiting write that is sent again within `resent` if it fails.
    async fn register(&self, resent: Duration) -> WaitingOwner {
        let path = self.file.clone();
        let locked = spawn_blocking(move || lock_shared(&path))
            .await
            .unwrap_or_else(|lost| Err(io::Error::other(lost)));
        let file = locked.inspect_err(|error| {
            tracing::debug!(
                %error,
                "locking the file of a waiting owner failed; a takeover may get the lock first"
            );
        });
        WaitingOwner { file: file.ok(), lingers: resent.min(MAX_EXTENSION) + RESEND_MARGIN }
    }

    /// The time at which to judge a record that was read at `now`: the last moment of its lease if
    /// its owner may be waiting.
    pub(crate) async fn effective_time(
        &self,
        record: Option<&Record>,
        now: Timestamp,
    ) -> Timestamp {
        let Some(record) = record.filter(|record| expired_unreleased(record, now)) else {
            return now;
        };
        if now.duration_since(record.lease_until) < MAX_EXTENSION && self.any_waiting().await {
            Timestamp::from_millis(record.lease_until.as_millis().saturating_sub(1))
        } else {
            now
        }
    }

    async fn any_waiting(&self) -> bool {
        let file = self.file.clone();
        spawn_blocking(move || is_locked(&file)).await.unwrap_or(false)
    }
}

/// Whether a lease has expired without having been abandoned.
fn expired_unreleased(record: &Record, now: Timestamp) -> bool {
    record.state == RecordState::InFlight
        && record.lease_expired(now)
        && record.lease_until > Timestamp::EPOCH
        && !record.lease.is_zero()
}

impl WaitingOwner {
    /// Unregisters the write.
    pub(crate) fn done(mut self) {
        self.file = None;
    }
}

impl Drop for WaitingOwner {
    fn drop(&mut self) {
        if let Some(file) = self.file.take()
            && let Ok(runtime) = Handle::try_current()
        {
            let lingers = self.lingers;
            runtime.spawn(async move {
                tokio::time::sleep(lingers).await;
                drop(file);
            });
        }
    }
}

/// Opens the file without write access, which a lock does not need: the file may belong to another
/// user.
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

/// Whether any owner is waiting. A missing file means that none ever has.
fn is_locked(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|file| stays_locked(|| matches!(file.try_lock(), Err(TryLockError::WouldBlock))))
}

/// Whether the file is locked at every check. Another claim locks it for a moment while it checks,
/// an owner for as long as it waits.
fn stays_locked(mut locked: impl FnMut() -> bool) -> bool {
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
    use idempotent_core::{
        Abandoned, Fingerprint, OwnerToken,
        protocol::Claim,
        transition::{self, Change},
    };

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_failed_counts_as_waiting_until_it_is_sent_again() {
        let database =
            std::env::temp_dir().join(format!("idempotent-waiting-{}", std::process::id()));
        let owners = WaitingOwners::of(database.to_str().unwrap());
        let resent = Duration::from_secs(20);

        drop(owners.register(resent).await);
        tokio::time::sleep(resent).await;
        assert!(owners.any_waiting().await, "the lease is renewed every twenty seconds");
        tokio::time::sleep(RESEND_MARGIN + Duration::from_millis(1)).await;
        assert!(!owners.any_waiting().await, "nothing is waiting any more");

        owners.register(resent).await.done();
        assert!(!owners.any_waiting().await, "the renewal is done");
        std::fs::remove_file(&owners.file).unwrap();
    }

    #[test]
    fn no_renewal_is_expected_of_an_abandoned_lease_or_one_without_length() {
        let now = Timestamp::from_millis(1_000_000);
        let claim = |lease| {
            let fingerprint = Fingerprint::from_bytes([1; Fingerprint::BYTES]);
            let mut claim = Claim::new(fingerprint, OwnerToken::from_bytes([1; 16]));
            claim.lease = lease;
            claim
        };
        for (lease, released, expected) in [(1, false, true), (1, true, false), (0, false, false)] {
            let claim = claim(Duration::from_millis(lease));
            let Change::Put(mut record) = transition::claim(None, &claim, now).0 else {
                panic!("it is granted")
            };
            if released {
                let Change::Put(abandoned) =
                    transition::abandon(Some(&record), claim.owner, Abandoned::Retry, now).0
                else {
                    panic!("it is its owner's")
                };
                record = abandoned;
            }
            assert_eq!(expired_unreleased(&record, now.after(claim.lease)), expected, "{record:?}");
        }
    }

    #[test]
    fn a_concurrent_check_is_not_taken_for_a_waiting_renewal() {
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
            assert_eq!((stays_locked(locked), looked), (waits, looks), "{found:?}");
        }
    }
}
