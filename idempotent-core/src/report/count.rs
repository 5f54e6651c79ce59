//! The view of a count.

use serde::Serialize;

use super::Time;
use crate::protocol::RecordCount;

/// How many records there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CountView {
    /// All records, also expired ones that are not purged yet.
    pub records: u64,
    /// Whether `records` is exact. Otherwise it is estimated.
    pub is_exact: bool,
    /// The records that are held.
    pub held: u64,
    /// The watched records that are in flight: those that would be held if they were abandoned, and
    /// those whose lease was renewed.
    pub in_flight: u64,
    /// When the oldest held record was first claimed.
    pub oldest_held: Option<Time>,
}

impl From<&RecordCount> for CountView {
    fn from(count: &RecordCount) -> Self {
        Self {
            records: count.records,
            is_exact: count.is_exact,
            held: count.held,
            in_flight: count.in_flight,
            oldest_held: count.oldest_held.map(Time::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_count_has_a_fixed_shape() {
        let oldest_held = Some(Timestamp::from_millis(1_795_780_981_250));
        let at = Timestamp::from_millis(20_000);
        let count =
            RecordCount { records: 9, is_exact: true, held: 2, in_flight: 3, oldest_held, at };
        let expected = json!({
            "records": 9,
            "is_exact": true,
            "held": 2,
            "in_flight": 3,
            "oldest_held": "2026-11-27T12:03:01.250Z",
        });
        assert_eq!(serde_json::to_value(CountView::from(&count)).unwrap(), expected);
    }
}
