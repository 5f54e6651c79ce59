//! Limits on the guarded operations in flight, in total and per principal.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use idempotent_core::Principal;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The most operations that may be in flight in one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationLimits {
    pub(crate) total: usize,
    pub(crate) per_principal: usize,
}

/// Counts operations from before their claim until their response is recorded, also when their
/// client has disconnected.
pub(crate) struct OperationLimiter {
    limits: OperationLimits,
    total: AtomicUsize,
    principals: Mutex<BTreeMap<Principal, usize>>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    Total,
    Principal,
}

/// The right of one operation to be in flight, until it is dropped.
pub(crate) struct Permit {
    limiter: Arc<OperationLimiter>,
    /// `None` for an operation without a principal.
    principal: Option<Principal>,
}

/// Holds the permit of one operation, and the token that a drain waits for.
#[derive(Default)]
pub(crate) struct PermitHolder(Cell<Option<(Permit, TaskTrackerToken)>>);

impl PermitHolder {
    pub(crate) fn hold(&self, permit: Permit, token: TaskTrackerToken) {
        self.0.set(Some((permit, token)));
    }

    pub(crate) fn release(&self) {
        self.0.take();
    }
}

impl fmt::Debug for PermitHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermitHolder")
    }
}

impl OperationLimiter {
    pub(crate) fn new(limits: OperationLimits) -> Arc<Self> {
        let (total, principals) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { limits, total, principals })
    }

    pub(crate) fn limits(&self) -> OperationLimits {
        self.limits
    }

    /// Counts one more operation of `principal`, unless a limit is reached. An operation without a
    /// principal is only counted in total.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        principal: Option<Principal>,
    ) -> Result<Permit, ReachedLimit> {
        let limiter = self.clone();
        if self.total.fetch_add(1, Ordering::Relaxed) >= self.limits.total {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(ReachedLimit::Total);
        }
        // If the principal has reached its limit, dropping the permit undoes the count in total.
        let mut permit = Permit { limiter, principal: None };
        if let Some(principal) = principal {
            let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
            let count = principals.entry(principal).or_default();
            if *count >= self.limits.per_principal {
                if *count == 0 {
                    principals.remove(&principal);
                }
                return Err(ReachedLimit::Principal);
            }
            *count += 1;
            permit.principal = Some(principal);
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.total.fetch_sub(1, Ordering::Relaxed);
        let Some(principal) = self.principal else { return };
        let mut principals = self.limiter.principals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = principals.get_mut(&principal) {
            *count -= 1;
            if *count == 0 {
                principals.remove(&principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use idempotent_core::ScopeId;

    use super::*;

    fn user(name: &str) -> Option<Principal> {
        Some(ScopeId::of("user", name).principal())
    }

    fn limiter(total: usize, per_principal: usize) -> Arc<OperationLimiter> {
        OperationLimiter::new(OperationLimits { total, per_principal })
    }

    #[test]
    fn a_principal_at_its_limit_leaves_room_for_others() {
        let limiter = limiter(3, 2);
        let (alice, bob) = (user("alice"), user("bob"));
        let first = limiter.acquire(alice);
        let _second = limiter.acquire(alice);
        assert_eq!(limiter.acquire(alice).err(), Some(ReachedLimit::Principal));
        let _other = limiter.acquire(bob).ok().unwrap();
        assert_eq!(limiter.acquire(bob).err(), Some(ReachedLimit::Total));
        drop(first);
        assert!(limiter.acquire(alice).is_ok());
    }

    #[test]
    fn refused_operations_are_not_counted() {
        let limiter = limiter(1, 0);
        for _ in 0..3 {
            assert_eq!(limiter.acquire(user("alice")).err(), Some(ReachedLimit::Principal));
        }
        assert!(limiter.principals.lock().unwrap().is_empty());
        assert!(limiter.acquire(None).is_ok());
        assert_eq!(limiter.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn operations_without_a_principal_are_limited_in_total_only() {
        let limiter = limiter(2, 1);
        let permits: Vec<_> = (0..3).map(|_| limiter.acquire(None)).collect();
        assert_eq!(permits.iter().filter(|permit| permit.is_ok()).count(), 2);
        drop(permits);
        assert!(limiter.principals.lock().unwrap().is_empty());
    }
}
