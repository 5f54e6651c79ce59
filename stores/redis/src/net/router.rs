//! Routes commands to the server that has their key, and sends them once more where that is safe.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::{runtime::Handle, time::timeout};

use super::{
    address::Address,
    discovery,
    node::{ConnectionRole, Message, Node, OPEN_TIMEOUT},
    route::ConnectionRoute,
    servers::Servers,
};
use crate::{
    encoding::redis_millis,
    error::{CallFailure, Reaction},
    lua::{Arg, Script},
};
use idempotent_core::store::{
    Cause,
    ConnectionState::{Good, Unusable},
    Effect,
};

/// How many redirects a command follows.
const REDIRECTS: u32 = 5;
/// How many commands are sent in one write.
const BATCH: usize = 1_000;

/// A key, and its number among those that a call is about.
type NumberedKey<'a> = (usize, &'a [u8]);

/// Whether a command may be sent once more if its outcome is unknown, because executing it twice
/// has the same effect as executing it once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendAgain {
    Once,
    Never,
}

/// Routes the commands of a store and of its clones.
#[derive(Clone)]
pub(crate) struct Router {
    pub(crate) servers: Arc<Servers>,
    /// How long nothing may arrive from a server while a call waits for its response.
    pub(crate) response_timeout: Duration,
}

impl Router {
    /// Finds the servers and verifies their settings. In a cluster, nodes that cannot be reached
    /// are verified later.
    pub(crate) async fn open(
        address: Address,
        response_timeout: Duration,
    ) -> Result<Self, CallFailure> {
        let router = Self { servers: discovery::find(address).await?, response_timeout };
        router
            .on_each_master(|node| async {
                router.connect(node, ConnectionRole::Requests).await.map(drop)
            })
            .await?;
        Ok(router)
    }

    /// Calls a function for each master. In a cluster, transient failures are ignored if one call
    /// succeeds.
    pub(crate) async fn on_each_master<F>(
        &self,
        each: impl Fn(Arc<Node>) -> F,
    ) -> Result<(), CallFailure>
    where
        F: Future<Output = Result<(), CallFailure>>,
    {
        let (in_cluster, mut done, mut failed) = (self.servers.in_cluster(), false, None);
        let results = self.servers.masters().into_iter().map(|node| {
            let result = each(node);
            async {
                match in_cluster {
                    true => timeout(OPEN_TIMEOUT, result)
                        .await
                        .unwrap_or(Err(CallFailure::ConnectTimeout)),
                    false => result.await,
                }
            }
        });
        for result in join_all(results).await {
            match result {
                Ok(()) => done = true,
                Err(failure) if failure.is_transient() => failed = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        if done { Ok(()) } else { Err(failed.unwrap_or(CallFailure::NoMaster)) }
    }

    async fn connect(
        &self,
        node: Arc<Node>,
        role: ConnectionRole,
    ) -> Result<ConnectionRoute, CallFailure> {
        let runtime = Handle::try_current().map_err(|_| CallFailure::NoRuntime)?;
        let connection = match node.open_connection(runtime.id(), role) {
            Some(open) => open,
            // Boxed: keeps the future of a call small while the connection is open.
            None => {
                self.servers.close_with(&runtime);
                Box::pin(node.connection(runtime.id(), role)).await?
            }
        };
        Ok(ConnectionRoute::on(node, connection, role))
    }

    /// Calls a script on keys of one slot, by its hash first.
    pub(crate) async fn call(
        &self,
        (role, resend): (ConnectionRole, SendAgain),
        script: &Script,
        keys: &[&[u8]],
        args: &[Arg<'_>],
    ) -> Result<(Value, ConnectionRoute), CallFailure> {
        let key = keys.first().copied().unwrap_or_default();
        match self.send((role, resend), key, &script.by_hash(keys, args)).await {
            Err(failure) if failure.reaction() == Some(Reaction::SendScript) => {
                self.send((role, resend), key, &script.by_code(keys, args)).await
            }
            result => result,
        }
    }

    /// Sends a command to the server that has the key.
    pub(crate) async fn send(
        &self,
        (role, resend): (ConnectionRole, SendAgain),
        key: &[u8],
        command: &Cmd,
    ) -> Result<(Value, ConnectionRoute), CallFailure> {
        let (mut ask_node, mut redirects, mut resend) =
            (None, REDIRECTS, resend == SendAgain::Once);
        loop {
            let (node, message) = match ask_node.take() {
                Some(node) => (node, Message::Asking(command)),
                None => {
                    let node = self.servers.node(key).inspect_err(|_| self.servers.refresh())?;
                    (node, Message::Command(command))
                }
            };
            let route = match self.connect(node.clone(), role).await {
                Ok(route) => route,
                // The server was replaced before the command was sent.
                Err(CallFailure::ConnectionClosed) if redirects > 0 => {
                    redirects -= 1;
                    continue;
                }
                Err(failure) => {
                    self.servers.refresh();
                    return Err(failure);
                }
            };
            let failure = match route.send(message, self.response_timeout).await {
                Ok(value) => return Ok((value, route)),
                Err(failure) => failure,
            };
            if let Some(redirect) = failure.redirect()
                && redirects > 0
            {
                redirects -= 1;
                ask_node = self.servers.apply_redirect(key, &node, redirect);
                continue;
            }
            let class = failure.class();
            let sends_again = match (class.effect, class.connection) {
                // The server closed the connection while it was idle, or is no longer a master.
                (Effect::None, Unusable) if class.cause == Cause::Temporary && redirects > 0 => {
                    redirects -= 1;
                    true
                }
                (Effect::Unknown, Unusable) => std::mem::take(&mut resend),
                (Effect::None | Effect::Unknown, Unusable | Good) => false,
            };
            if class.connection == Unusable || failure.reaction() == Some(Reaction::RefreshView) {
                self.servers.refresh();
            }
            if !sends_again {
                return Err(failure);
            }
        }
    }

    /// Sends a command for each key, which only reads, to the server that has the key, many in one
    /// write. `command` gets the number of the key and the key.
    pub(crate) async fn send_each(
        &self,
        keys: &[Vec<u8>],
        command: impl Fn(usize, &[u8]) -> Cmd + Sync,
    ) -> Result<Vec<Result<Value, CallFailure>>, CallFailure> {
        let mut of_nodes: Vec<(Arc<Node>, Vec<NumberedKey<'_>>)> = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let node = self.servers.node(key).inspect_err(|_| self.servers.refresh())?;
            match of_nodes.iter_mut().rfind(|(of, _)| Arc::ptr_eq(of, &node)) {
                Some((_, keys)) => keys.push((number, key)),
                None => of_nodes.push((node, vec![(number, key)])),
            }
        }
        let command = &command;
        let sent = of_nodes.iter().map(|(node, keys)| async move {
            let mut replies = Vec::with_capacity(keys.len());
            for some in keys.chunks(BATCH) {
                replies.extend(self.send_batch(node, some, command).await?);
            }
            Ok::<_, CallFailure>(replies)
        });
        let mut replies = Vec::with_capacity(keys.len());
        for of_node in join_all(sent).await {
            replies.extend(of_node?);
        }
        replies.sort_unstable_by_key(|(number, _)| *number);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    async fn send_batch(
        &self,
        node: &Arc<Node>,
        keys: &[NumberedKey<'_>],
        command: &(impl Fn(usize, &[u8]) -> Cmd + Sync),
    ) -> Result<Vec<(usize, Result<Value, CallFailure>)>, CallFailure> {
        let mut batch = redis::pipe();
        for (number, key) in keys {
            batch.add_command(command(*number, key));
        }
        let message = Message::Batch(&batch, keys.len());
        let sent = self.send_to(node, ConnectionRole::Lists, message).await;
        let Value::Array(values) = sent.inspect_err(|_| self.servers.refresh())? else {
            return Err(CallFailure::Unexpected);
        };
        let mut replies = Vec::with_capacity(values.len());
        for (value, (number, key)) in values.into_iter().zip(keys) {
            let reply = match value.extract_error().map_err(CallFailure::from) {
                // The slot of the key has moved, or is moving.
                Err(failure) if failure.redirect().is_some() => {
                    let target = (ConnectionRole::Lists, SendAgain::Once);
                    let again = self.send(target, key, &command(*number, key)).await;
                    again.map(|(value, _)| value)
                }
                reply => reply,
            };
            replies.push((*number, reply));
        }
        Ok(replies)
    }

    /// Sends a command to a specific node; once more if the connection is lost.
    pub(crate) async fn send_to(
        &self,
        node: &Arc<Node>,
        role: ConnectionRole,
        message: Message<'_>,
    ) -> Result<Value, CallFailure> {
        let send = async || {
            self.connect(node.clone(), role).await?.send(message, self.response_timeout).await
        };
        match send().await {
            Err(failure) if failure.class().connection == Unusable => send().await,
            result => result,
        }
    }

    /// Waits until at least `replicas` have what was written on this connection, and returns how
    /// many have it.
    pub(crate) async fn wait(
        &self,
        route: &ConnectionRoute,
        replicas: u32,
        within: Duration,
    ) -> Result<u64, CallFailure> {
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(redis_millis(within).max(1));
        let limit = self.response_timeout.saturating_add(within);
        let found = route.send(Message::Command(&wait), limit).await?;
        redis::from_redis_value(found).map_err(CallFailure::unexpected_reply)
    }
}
