//! The index of the attempts that have noted an input.
//!
//! The index is a sorted set with its own key, which one node of a cluster has. Its members are
//! record ids, each with the owner token of the attempt; all scores are 0, so that the members are
//! in the order of their bytes. It contains every attempt whose input is in a record, and attempts
//! that have ended or whose note failed.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    error::CallFailure,
    lua::{Arg, Script},
    net::{ConnectionRole, ConnectionRoute, Router, SendAgain},
};
use idempotent_core::{Lease, OwnerToken, RecordId};

/// The key of the index, after the prefix. It is shorter than the id of a record.
const INDEX: &[u8] = b"inputs";

#[derive(Clone)]
pub(crate) struct InputIndex {
    key: Arc<[u8]>,
}

impl InputIndex {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { key: [prefix.as_bytes(), INDEX].concat().into() }
    }

    /// Adds an attempt, and returns the connection on which the command was sent.
    pub(crate) async fn add(
        &self,
        router: &Router,
        (script, role): (&Script, ConnectionRole),
        attempt: &Lease,
    ) -> Result<ConnectionRoute, CallFailure> {
        let (target, member) = ((role, SendAgain::Once), member(attempt));
        let called = router.call(target, script, &[&self.key], &[Arg::Bytes(&member)]).await;
        called.map(|(_, route)| route)
    }

    /// Returns at most `limit` attempts, after those at the record `after`.
    pub(crate) async fn next_attempts(
        &self,
        router: &Router,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<Vec<Lease>, CallFailure> {
        let first = match after {
            // No owner token is above this one.
            Some(id) => [b"(".as_slice(), id.as_bytes().as_slice(), &[u8::MAX; 16]].concat(),
            None => b"-".to_vec(),
        };
        let mut range = redis::cmd("ZRANGE");
        range.arg(&*self.key).arg(first).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(limit);
        let target = (ConnectionRole::Requests, SendAgain::Once);
        let (members, _) = router.send(target, &self.key, &range).await?;
        let members: Vec<Bytes> =
            redis::from_redis_value(members).map_err(CallFailure::unexpected_reply)?;
        Ok(members.iter().filter_map(|member| attempt(member)).collect())
    }

    /// Removes attempts that have ended. If that fails, they stay in the index until a search for
    /// resumable operations looks them up.
    pub(crate) async fn remove(&self, router: &Router, ended: &[Lease]) {
        if ended.is_empty() {
            return;
        }
        let mut remove = redis::cmd("ZREM");
        remove.arg(&*self.key);
        for attempt in ended {
            remove.arg(member(attempt));
        }
        let target = (ConnectionRole::Requests, SendAgain::Once);
        if let Err(failure) = router.send(target, &self.key, &remove).await {
            let cause = std::error::Error::source(&failure);
            tracing::debug!(
                error = %failure,
                cause,
                "removing attempts that have ended from the index of inputs failed"
            );
        }
    }
}

fn member(attempt: &Lease) -> Vec<u8> {
    [attempt.id.as_bytes().as_slice(), attempt.owner.as_bytes()].concat()
}

fn attempt(member: &[u8]) -> Option<Lease> {
    let (id, owner) = member.split_first_chunk()?;
    let owner = OwnerToken::from_bytes(owner.try_into().ok()?);
    Some(Lease { id: RecordId::from_bytes(*id), owner })
}
