//! Slots that move between the nodes of a cluster, for calls that read the keys of all nodes.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    discovery::update_slots,
    node::{ConnectionRole, Message, Node},
    router::Router,
};
use crate::error::CallFailure;

/// Which of these masters are importing a slot. `None`: the slots of one of them are not those that
/// the store has known, so the store has looked up the slots again.
pub(crate) async fn importing(
    router: &Router,
    masters: &[Arc<Node>],
) -> Result<Option<Vec<bool>>, CallFailure> {
    let reports = join_all(masters.iter().map(|node| async move {
        let mut nodes = redis::cmd("CLUSTER");
        nodes.arg("NODES");
        router.send_to(node, ConnectionRole::Lists, Message::Command(&nodes)).await
    }))
    .await;
    let mut importing = Vec::with_capacity(masters.len());
    for (node, report) in masters.iter().zip(reports) {
        let report: String =
            redis::from_redis_value(report?).map_err(CallFailure::unexpected_reply)?;
        let own = OwnSlots::parse(&report)?;
        if own.slots != router.servers.slots_of(node) {
            update_slots(&router.servers).await?;
            return Ok(None);
        }
        importing.push(own.is_importing);
    }
    Ok(Some(importing))
}

/// What a node reports of itself.
#[derive(Debug, PartialEq, Eq)]
struct OwnSlots {
    /// Its slots, in order.
    slots: Vec<usize>,
    is_importing: bool,
}

impl OwnSlots {
    /// Parses the reply to `CLUSTER NODES`: one line for each node, whose eight fields before the
    /// slots are separated by spaces. The third one marks the node itself.
    fn parse(report: &str) -> Result<Self, CallFailure> {
        let is_own = |line: &&str| {
            let flags = line.split(' ').nth(2).unwrap_or_default();
            flags.split(',').any(|flag| flag == "myself")
        };
        let line = report.lines().find(is_own).ok_or(CallFailure::Unexpected)?;
        let mut own = Self { slots: Vec::new(), is_importing: false };
        for field in line.split(' ').skip(8) {
            if field.starts_with('[') {
                own.is_importing |= field.contains("-<-");
                continue;
            }
            let (first, last) = field.split_once('-').unwrap_or((field, field));
            let parsed = |slot: &str| slot.parse::<usize>().map_err(|_| CallFailure::Unexpected);
            own.slots.extend(parsed(first)?..=parsed(last)?);
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_reports_its_slots_and_what_it_imports() {
        let of = |own: &str| {
            let report = format!(
                "07c3 10.0.0.1:7001@17001,one master - 0 1 4 connected 5-9 [5->-6730]\n\
                 6730 10.0.0.2:7000@17000 myself,master - 0 0 2 connected{own}\n"
            );
            OwnSlots::parse(&report).map_err(|failure| failure.to_string())
        };
        let own =
            |slots: &[usize], is_importing| Ok(OwnSlots { slots: slots.into(), is_importing });
        assert_eq!(of(""), own(&[], false));
        assert_eq!(of(" 0-2 4"), own(&[0, 1, 2, 4], false));
        assert_eq!(of(" 3 [3->-07c3]"), own(&[3], false));
        assert_eq!(of(" 3 [3->-07c3] [5-<-07c3]"), own(&[3], true));
        assert!(of(" three").is_err());
        assert!(
            OwnSlots::parse("07c3 10.0.0.1:7001@17001 master - 0 1 4 connected 5-9\n").is_err()
        );
    }
}
