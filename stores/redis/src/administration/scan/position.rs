//! Where a scan goes on, as a text.

use crate::error::CallFailure;
use idempotent_core::{
    RecordId,
    protocol::{InvalidPosition, PagePosition},
};

/// Where a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanPosition {
    /// Identifies the servers, their order and their slots.
    pub(super) servers: u64,
    /// The number of the server; in the second round, above the number of servers.
    pub(super) node: usize,
    pub(super) cursor: u64,
    /// The cursor of the next reply and the last record that was listed, if only a part of the
    /// reply was. The ids of a reply are in order.
    pub(super) within: Option<(u64, RecordId)>,
}

impl ScanPosition {
    pub(super) fn start(servers: u64) -> Self {
        Self { servers, node: 0, cursor: 0, within: None }
    }

    pub(crate) fn parse(position: &PagePosition) -> Result<Self, InvalidPosition> {
        let mut parts = position.as_str().split('-');
        let mut next = || parts.next().ok_or(InvalidPosition);
        let servers = u64::from_str_radix(next()?, 16).map_err(|_| InvalidPosition)?;
        let node = next()?.parse().map_err(|_| InvalidPosition)?;
        let cursor = next()?.parse().map_err(|_| InvalidPosition)?;
        let within = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(next), Some(id), None) => {
                let next = next.parse().map_err(|_| InvalidPosition)?;
                Some((next, id.parse().map_err(|_| InvalidPosition)?))
            }
            _ => return Err(InvalidPosition),
        };
        Ok(Self { servers, node, cursor, within })
    }

    pub(super) fn write(&self) -> Result<PagePosition, CallFailure> {
        let Self { servers, node, cursor, within } = self;
        let within = within.map_or(String::new(), |(next, id)| format!("-{next}-{id}"));
        let text = format!("{servers:x}-{node}-{cursor}{within}");
        text.parse().map_err(|_| CallFailure::Unexpected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_and_read() {
        let start = ScanPosition::start(0xfedc_ba98_7654_3210);
        let id = RecordId::from_bytes([0xab; 32]);
        for position in [
            start,
            ScanPosition { node: 7, cursor: u64::MAX, ..start },
            ScanPosition { within: Some((u64::MAX, id)), ..start },
        ] {
            assert_eq!(ScanPosition::parse(&position.write().unwrap()), Ok(position));
        }
        let text = start.write().unwrap().to_string();
        for wrong in ["nowhere", "1-2", "1-2-x", &format!("{text}-1"), &format!("{text}-1-{id}-2")]
        {
            assert!(ScanPosition::parse(&wrong.parse().unwrap()).is_err(), "{wrong}");
        }
    }
}
