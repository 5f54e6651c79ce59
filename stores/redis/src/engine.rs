//! What each step of the store takes: the servers, the scripts and the settings.

use std::sync::Arc;

use redis::Value;

use self::inputs::InputIndex;
use crate::{
    error::CallFailure,
    lua::{Arg, Script, Scripts},
    net::{ConnectionRole, ConnectionRoute, Replicas, Router, SendAgain},
    options::RedisOptions,
};
use idempotent_core::{Lease, RecordId, protocol::Fence};

mod inputs;

/// What a store and its clones share.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) router: Router,
    pub(crate) scripts: Arc<Scripts>,
    /// What each key begins with.
    pub(crate) prefix: Arc<str>,
    pub(crate) inputs: InputIndex,
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// The shortest recording that is stored without a script if the server can, in bytes.
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
        Self {
            router,
            scripts,
            prefix: options.key_prefix.as_str().into(),
            inputs: InputIndex::new(&options.key_prefix),
            replicas,
            large: LARGE,
        }
    }

    /// The key of a record.
    pub(crate) fn key(&self, id: &RecordId) -> Vec<u8> {
        [self.prefix.as_bytes(), id.as_bytes()].concat()
    }

    /// Calls a script that compares the owner. Returns whether it passed, and the connection on
    /// which it was sent. If the attempt has ended with an input, removes it from the index.
    pub(crate) async fn call_fenced(
        &self,
        how: (ConnectionRole, SendAgain),
        script: &Script,
        lease: &Lease,
        more: &[Arg<'_>],
    ) -> Result<(Fence, ConnectionRoute), CallFailure> {
        let args = [&[Arg::Bytes(lease.owner.as_bytes())], more].concat();
        match self.router.call(how, script, &self.key(&lease.id), &args).await? {
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
