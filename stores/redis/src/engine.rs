//! What each step of the store takes: the servers, the scripts and the settings.

use std::sync::Arc;

use redis::Value;

use self::inputs::InputIndex;
pub(crate) use self::{
    conditional_set::{replaced, set_if_equal},
    first_claims::{FirstClaim, FirstClaims},
    slot_keys::SlotKeys,
};
use crate::{
    error::{CallFailure, Reaction},
    lua::{Arg, Script, Scripts},
    net::{ConnectionRole, ConnectionRoute, Replicas, Router, SendAgain},
    options::RedisOptions,
};
use idempotent_core::{Lease, RecordId, protocol::Fence};

mod conditional_set;
mod first_claims;
mod inputs;
mod slot_keys;

/// What a store and its clones share.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) router: Router,
    pub(crate) scripts: Arc<Scripts>,
    /// What each key begins with.
    pub(crate) prefix: Arc<str>,
    pub(crate) inputs: InputIndex,
    /// The keys of the watch lists, and of the logs of operators' decisions.
    pub(crate) watched: SlotKeys,
    pub(crate) log: SlotKeys,
    pub(crate) replicas: Option<Arc<Replicas>>,
    pub(crate) first: Arc<FirstClaims>,
    /// The shortest recording for which a claim is read to store it without a script, if the server
    /// can, in bytes.
    pub(crate) large: usize,
}

/// The shortest recording for which a second round trip pays, in bytes
/// (`docs/decisions/036-large-recordings-in-redis.md`).
const LARGE: usize = 64 * 1024;

impl Engine {
    pub(crate) fn new(router: Router, scripts: Arc<Scripts>, options: &RedisOptions) -> Self {
        let waits = options.replicas > 0;
        let replicas =
            waits.then(|| Arc::new(Replicas::new(options.replicas, options.replication_timeout)));
        let slot_keys =
            |name| SlotKeys::new(&options.key_prefix, name, router.servers.in_cluster());
        Self {
            watched: slot_keys("watched"),
            log: slot_keys("log"),
            router,
            scripts,
            prefix: options.key_prefix.as_str().into(),
            inputs: InputIndex::new(&options.key_prefix),
            replicas,
            first: Arc::default(),
            large: LARGE,
        }
    }

    /// The key of a record.
    pub(crate) fn key(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    /// Calls a script on a record, and on what is kept beside it.
    pub(crate) async fn call(
        &self,
        how: (ConnectionRole, SendAgain),
        script: &Script,
        (id, beside): (&RecordId, Beside),
        args: &[Arg<'_>],
    ) -> Result<(Value, ConnectionRoute), CallFailure> {
        let key = self.key(id);
        if beside == Beside::Nothing {
            return self.router.call(how, script, &[&key], args).await;
        }
        let (watched, log) = (self.watched.of(&key), self.log.of(&key));
        let keys = [&key[..], &watched, &log];
        let (keys, _) = keys.split_at(if beside == Beside::ListAndLog { 3 } else { 2 });
        match self.router.call(how, script, keys, args).await {
            Err(failure) if failure.reaction() == Some(Reaction::SendForOneKey) => {
                match beside {
                    Beside::List => Box::pin(self.watch(how.0, id, &watched)).await?,
                    Beside::ListIfTogether => {}
                    Beside::Nothing | Beside::ListAndLog => return Err(failure),
                }
                self.router.call(how, script, &[&key], args).await
            }
            result => result,
        }
    }

    /// Adds a record to the watch list before a step that cannot do so itself. Between the two
    /// another process may list the entry; it is too young to be dropped for want of a record.
    async fn watch(
        &self,
        role: ConnectionRole,
        id: &RecordId,
        watched: &[u8],
    ) -> Result<(), CallFailure> {
        let (target, id) = ((role, SendAgain::Once), [Arg::Bytes(id.as_bytes())]);
        let (_, route) = self.router.call(target, &self.scripts.watch, &[watched], &id).await?;
        match &self.replicas {
            Some(replicas) => replicas.confirm(&self.router, &route).await,
            None => Ok(()),
        }
    }

    /// Calls a script that corrects the entry of a record in the watch list. If that fails, the
    /// entry stays as it is until a list meets it.
    pub(crate) async fn correct_list(
        &self,
        role: ConnectionRole,
        script: &Script,
        id: &RecordId,
        args: &[Arg<'_>],
    ) {
        let key = self.key(id);
        let (target, watched) = ((role, SendAgain::Once), self.watched.of(&key));
        if let Err(failure) = self.router.call(target, script, &[&key, &watched], args).await {
            let cause = std::error::Error::source(&failure);
            tracing::debug!(
                id = %id.short(),
                error = %failure,
                cause,
                "correcting an entry of the watch list failed"
            );
        }
    }

    /// Calls a script that compares the owner. Returns whether it passed, and the connection on
    /// which it was sent. If the attempt has ended with an input, removes it from the index.
    pub(crate) async fn call_fenced(
        &self,
        how: (ConnectionRole, SendAgain),
        script: &Script,
        (lease, beside): (&Lease, Beside),
        more: &[Arg<'_>],
    ) -> Result<(Fence, ConnectionRoute), CallFailure> {
        // The script changes the value of the record.
        drop(self.first.take(lease));
        let args = [&[Arg::Bytes(lease.owner.as_bytes())], more].concat();
        match self.call(how, script, (&lease.id, beside), &args).await? {
            (Value::Int(0), route) => Ok((Fence::Fenced, route)),
            (Value::Int(1), route) => Ok((Fence::Passed, route)),
            (Value::Int(2), route) => {
                Box::pin(self.inputs.remove(&self.router, &[*lease])).await;
                Ok((Fence::Passed, route))
            }
            _ => Err(CallFailure::Unexpected),
        }
    }
}

/// What a script changes together with a record. While the slot of the record moves to another node
/// of a cluster, the keys may be on two nodes, and no script can change both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// The watch list, to which the script adds the record. While the slot moves, the entry is
    /// written first.
    List,
    /// The watch list, unless the slot moves: a later renewal adds the entry, and a list drops an
    /// entry that should have been removed.
    ListIfTogether,
    /// The watch list and the log. While the slot moves, the call may fail.
    ListAndLog,
}
