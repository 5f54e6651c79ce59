//! First claims that this process has written, and their completion without a script.
//!
//! Their owner knows the value that it wrote. So it completes the claim by one plain command, on
//! the condition that the value is still the same (`SET … IFEQ`), on servers that can compare it.
//! Every step that changes the record changes its value: a renewal, a note, a takeover, an
//! operator's decision. Then the condition fails, and the script decides.
//!
//! The expiry follows from the length of the ttl and the time that has passed since the claim, by
//! the clock of this process, since the command must not name a point in time
//! (`docs/decisions/047-first-completions-in-redis-without-a-script.md`).

use std::{
    sync::{Mutex, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use redis::Cmd;
use tokio::time::Instant;

use super::conditional_set::set_if_equal;
use crate::{
    encoding::{encode_first_completed, redis_millis},
    net::lock,
};
use idempotent_core::{Lease, clock::millis, protocol::Claim};

/// How many claims a store remembers: much more than usually are in flight. The script completes a
/// claim whose place another one has taken.
const PLACES: u16 = 4096;

/// What a store and its clones remember of the first claims in flight.
#[derive(Default)]
pub(crate) struct FirstClaims {
    /// Each claim has its place by its owner token, which is random. Made for the first claim,
    /// since most servers cannot compare values.
    places: OnceLock<Box<[Place]>>,
}

type Place = Mutex<Option<Box<FirstClaim>>>;

/// A first claim, as its owner has written it.
pub(crate) struct FirstClaim {
    lease: Lease,
    value: Vec<u8>,
    /// In milliseconds.
    ttl: u64,
    /// A third of the lease.
    third: Duration,
    /// When the claim was sent, and when it was known to be granted.
    sent: Instant,
    granted: Instant,
}

impl FirstClaims {
    pub(crate) fn remember(&self, claim: FirstClaim) {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| Place::default()).collect());
        if let Some(place) = places.get(number(&claim.lease)) {
            // Dropped after the lock.
            let _replaced = lock(place).replace(Box::new(claim));
        }
    }

    /// Returns a claim, and forgets it.
    pub(crate) fn take(&self, lease: &Lease) -> Option<Box<FirstClaim>> {
        let mut place = lock(self.places.get()?.get(number(lease))?);
        place.take_if(|claim| claim.lease == *lease)
    }
}

#[cfg(feature = "internals")]
impl FirstClaims {
    /// Remembers no claim, so that scripts complete them all.
    pub(crate) fn none() -> Self {
        Self { places: OnceLock::from(Box::default()) }
    }

    /// Lets time pass since all claims.
    pub(crate) fn advance(&self, by: Duration) {
        for place in self.places.get().into_iter().flatten() {
            if let Some(claim) = lock(place).as_mut() {
                let earlier = |time: Instant| time.checked_sub(by).unwrap_or(time);
                (claim.sent, claim.granted) = (earlier(claim.sent), earlier(claim.granted));
            }
        }
    }

    /// Forgets all claims.
    pub(crate) fn forget(&self) {
        for place in self.places.get().into_iter().flatten() {
            drop(lock(place).take());
        }
    }
}

/// The number of its place.
fn number(lease: &Lease) -> usize {
    let [first, second, ..] = *lease.owner.as_bytes();
    usize::from(u16::from_be_bytes([first, second]) % PLACES)
}

impl FirstClaim {
    /// A claim that was sent as this value.
    pub(crate) fn new(
        lease: Lease,
        claim: &Claim,
        value: Vec<u8>,
        [sent, granted]: [Instant; 2],
    ) -> Self {
        let third = Duration::from_millis(redis_millis(claim.lease)) / 3;
        Self { lease, value, ttl: redis_millis(claim.ttl), third, sent, granted }
    }

    #[cfg(feature = "internals")]
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns for how long its recording is kept, in milliseconds; `None` later than a third of
    /// the lease after it was sent, when the lease is renewed.
    ///
    /// The server has created the record before the claim was known to be granted, so the recording
    /// is kept for the whole ttl, and for longer by the time that the two messages have taken. A
    /// clock that runs too fast takes at most a third of the lease, which the ttl is not shorter
    /// than.
    pub(crate) fn left(&self, now: Instant) -> Option<u64> {
        let passed = millis(now.duration_since(self.granted));
        (now.duration_since(self.sent) < self.third).then(|| self.ttl.saturating_sub(passed))
    }

    /// The command that completes it, if it is unchanged.
    pub(crate) fn completion(&self, key: &[u8], recording: &Bytes, left: u64) -> Cmd {
        let value = encode_first_completed(&self.value, recording, left);
        set_if_equal(key, [&value, recording], &self.value, left)
    }
}

#[cfg(test)]
mod tests {
    use idempotent_core::{Fingerprint, OwnerToken, RecordId};

    use super::*;
    use crate::encoding::encode_claim;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(id: u8, owner: [u8; 2]) -> Lease {
        let [first, last] = owner;
        let owner = [[first; 8], [last; 8]].concat().try_into().unwrap();
        Lease { id: RecordId::from_bytes([id; 32]), owner: OwnerToken::from_bytes(owner) }
    }

    fn claim() -> Claim {
        Claim::new(Fingerprint::from_bytes([7; Fingerprint::BYTES]), lease(1, [1, 1]).owner)
            .with_lease(30 * SECOND)
            .with_ttl(90 * SECOND)
    }

    /// A claim that was known to be granted a second after it was sent.
    fn first(lease: Lease, sent: Instant) -> FirstClaim {
        FirstClaim::new(lease, &claim(), encode_claim(&claim()), [sent, sent + SECOND])
    }

    #[test]
    fn a_claim_is_taken_once_and_by_its_lease_only() {
        let (claims, now) = (FirstClaims::default(), Instant::now());
        let own = lease(1, [1, 1]);
        assert!(claims.take(&own).is_none());
        claims.remember(first(own, now));
        // The same owner of another record, and another owner with the same place.
        for other in [lease(2, [1, 1]), lease(1, [1, 2])] {
            assert!(claims.take(&other).is_none());
        }
        assert!(claims.take(&own).is_some_and(|taken| taken.lease == own));
        assert!(claims.take(&own).is_none());
    }

    #[test]
    fn a_later_claim_takes_the_place_of_an_earlier_one() {
        let (claims, now) = (FirstClaims::default(), Instant::now());
        let [earlier, later, elsewhere] = [[1, 1], [1, 2], [2, 1]].map(|owner| lease(1, owner));
        for lease in [earlier, later, elsewhere] {
            claims.remember(first(lease, now));
        }
        assert!(claims.take(&earlier).is_none());
        assert!(claims.take(&later).is_some() && claims.take(&elsewhere).is_some());
    }

    #[test]
    fn the_rest_of_the_ttl_counts_from_the_grant_and_a_third_of_the_lease_from_the_claim() {
        let sent = Instant::now();
        let claim = first(lease(1, [1, 1]), sent);
        let left = |millis| claim.left(sent + Duration::from_millis(millis));
        assert_eq!(left(1_000), Some(90_000));
        assert_eq!(left(1_001), Some(89_999));
        assert_eq!(left(9_999), Some(81_001));
        assert_eq!(left(10_000), None);
        assert_eq!(left(3_600_000), None);
        // A part of a millisecond takes nothing of the ttl.
        assert_eq!(claim.left(sent + SECOND + Duration::from_micros(999)), Some(90_000));
    }

    #[test]
    fn a_completion_compares_the_claim() {
        let claim = encode_claim(&claim());
        let first = first(lease(1, [1, 1]), Instant::now());
        let recording = Bytes::from_static(b"done");
        let head = encode_first_completed(&claim, &recording, 5_000);
        let expected = set_if_equal(b"key", [&head, b"done"], &claim, 5_000);
        let completion = first.completion(b"key", &recording, 5_000);
        assert_eq!(completion.get_packed_command(), expected.get_packed_command());
    }

    #[cfg(feature = "internals")]
    #[test]
    fn tests_let_time_pass_or_forget_claims() {
        let (claims, now, lease) = (FirstClaims::default(), Instant::now(), lease(1, [1, 1]));
        for passed in [8, 9] {
            claims.remember(first(lease, now));
            claims.advance(passed * SECOND);
            let left = claims.take(&lease).and_then(|claim| claim.left(now + SECOND));
            assert_eq!(left, (passed == 8).then_some(82_000));
        }
        claims.remember(first(lease, now));
        claims.forget();
        assert!(claims.take(&lease).is_none());
        let none = FirstClaims::none();
        none.remember(first(lease, now));
        assert!(none.take(&lease).is_none());
    }
}
