//! How many guarded operations are in flight, in total and per principal.

use std::{
    cell::Cell,
    collections::{HashMap, hash_map::RandomState},
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use idempotent_core::ScopeId;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::scope::EVERYONE;

/// The most operations that may be in flight in one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) total: usize,
    pub(crate) per_principal: usize,
}

/// Counts operations from before their claim until their response is recorded, also when their client has disconnected.
pub(crate) struct InFlight {
    limits: Limits,
    total: AtomicUsize,
    /// By a hash of the scope, whose seed is secret: two principals that share one share a count, and none can choose to.
    principals: Mutex<HashMap<u64, usize>>,
    seed: RandomState,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Total,
    Principal,
}

/// One operation in flight, until it is dropped.
pub(crate) struct Place {
    in_flight: Arc<InFlight>,
    /// `None` for [`scope::global`](crate::scope::global), which names no principal.
    principal: Option<u64>,
}

/// Counts one operation, for its limits and for a drain, from `begin` to `end`.
#[derive(Default)]
pub(crate) struct Counted(Cell<Option<(Place, TaskTrackerToken)>>);

impl Counted {
    pub(crate) fn begin(&self, place: Place, token: TaskTrackerToken) {
        self.0.set(Some((place, token)));
    }

    pub(crate) fn end(&self) {
        self.0.take();
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl InFlight {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let (total, principals) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { limits, total, principals, seed: RandomState::new() })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Counts one more operation of `scope`, unless a limit is reached.
    pub(crate) fn enter(self: &Arc<Self>, scope: &ScopeId) -> Result<Place, Limit> {
        let in_flight = self.clone();
        if self.total.fetch_add(1, Ordering::Relaxed) >= self.limits.total {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return Err(Limit::Total);
        }
        // Gives its place back if the principal has none left.
        let mut place = Place { in_flight, principal: None };
        if *scope != *EVERYONE {
            let principal = self.seed.hash_one(scope);
            let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
            let count = principals.entry(principal).or_default();
            if *count >= self.limits.per_principal {
                if *count == 0 {
                    principals.remove(&principal);
                }
                return Err(Limit::Principal);
            }
            *count += 1;
            place.principal = Some(principal);
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.in_flight.total.fetch_sub(1, Ordering::Relaxed);
        let Some(principal) = self.principal else { return };
        let mut principals = self.in_flight.principals.lock().unwrap_or_else(PoisonError::into_inner);
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
    use super::*;

    fn in_flight(total: usize, per_principal: usize) -> Arc<InFlight> {
        InFlight::new(Limits { total, per_principal })
    }

    #[test]
    fn a_principal_at_its_limit_leaves_room_for_others() {
        let in_flight = in_flight(3, 2);
        let (alice, bob) = (ScopeId::of("user", "alice"), ScopeId::of("user", "bob"));
        let first = in_flight.enter(&alice);
        let _second = in_flight.enter(&alice);
        assert_eq!(in_flight.enter(&alice).err(), Some(Limit::Principal));
        let _other = in_flight.enter(&bob).ok().unwrap();
        assert_eq!(in_flight.enter(&bob).err(), Some(Limit::Total));
        drop(first);
        assert!(in_flight.enter(&alice).is_ok());
    }

    #[test]
    fn refused_operations_are_not_counted() {
        let in_flight = in_flight(1, 0);
        for _ in 0..3 {
            assert_eq!(in_flight.enter(&ScopeId::new("alice")).err(), Some(Limit::Principal));
        }
        assert!(in_flight.principals.lock().unwrap().is_empty());
        assert!(in_flight.enter(&EVERYONE).is_ok());
        assert_eq!(in_flight.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_global_scope_is_limited_in_total_only() {
        let in_flight = in_flight(2, 1);
        let places: Vec<_> = (0..3).map(|_| in_flight.enter(&EVERYONE)).collect();
        assert_eq!(places.iter().filter(|place| place.is_ok()).count(), 2);
        drop(places);
        assert!(in_flight.principals.lock().unwrap().is_empty());
    }
}
