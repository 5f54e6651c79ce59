//! How a command gets to the server that has its key, and is sent once more where that is safe.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::{
    address::Address,
    error::Failure,
    node::{Lane, Message, Node, OPENING, Sent},
    packed::redis_millis,
    replicas::Lanes,
    scripts::{Arg, Script},
    servers::Servers,
};

/// How often a command follows a key that moved.
const REDIRECTS: u32 = 5;

/// Whether a step may be sent once more when its outcome is unknown, because taking it twice is the
/// same as taking it once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Yes,
    No,
}

/// How long a server may take.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// To respond.
    pub(super) responding: Duration,
    /// For its replicas to acknowledge a write, in addition.
    pub(super) replicating: Duration,
}

/// The connections of a store. Its clones share them.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) servers: Arc<Servers>,
    pub(super) times: Times,
    pub(super) lanes: Arc<Lanes>,
    /// A file of the scripts, and what stands in its place.
    #[cfg(test)]
    pub(super) altered: Vec<(String, String)>,
}

impl Connections {
    /// The same servers, with other times.
    pub(super) fn with(self, change: impl FnOnce(Times) -> Times) -> Self {
        Self { times: change(self.times), ..self }
    }

    /// Finds the servers and verifies that they are fit for records. In a cluster, a node that
    /// cannot be reached is left for later.
    pub(super) async fn open(address: Address, times: Times) -> Result<Self, Failure> {
        let connections = Self {
            servers: Servers::find(address).await?,
            times,
            lanes: Arc::new(Lanes::new()),
            #[cfg(test)]
            altered: Vec::new(),
        };
        connections.on_each_master(|node| async { connections.connect(node, Lane::Work).await.map(drop) }).await?;
        Ok(connections)
    }

    /// Does something with each master. Where some of a cluster's do not respond, the others'
    /// results count.
    pub(super) async fn on_each_master<F>(&self, each: impl Fn(Arc<Node>) -> F) -> Result<(), Failure>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        let (in_cluster, mut done, mut failed) = (self.servers.in_cluster(), false, None);
        let results = self.servers.masters().into_iter().map(|node| {
            let result = each(node);
            async {
                match in_cluster {
                    true => timeout(OPENING, result).await.unwrap_or(Err(Failure::Slow)),
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
        if done { Ok(()) } else { Err(failed.unwrap_or(Failure::NoMaster)) }
    }

    async fn connect(&self, node: Arc<Node>, lane: Lane) -> Result<Sent, Failure> {
        let runtime = self.servers.runtime()?;
        let connection = node.connection(runtime, lane).await?;
        Ok(Sent::on(node, connection, lane))
    }

    /// Calls a script on a key, by its hash first.
    pub(super) async fn call(
        &self,
        (lane, again): (Lane, Again),
        script: &Script,
        key: &[u8],
        args: &[Arg<'_>],
    ) -> Result<(Value, Sent), Failure> {
        #[cfg(test)]
        let altered = script.altered(&self.altered);
        #[cfg(test)]
        let script = &altered;
        match self.send((lane, again), key, &script.by_hash(key, args)).await {
            Err(failure) if failure.is_forgotten() => self.send((lane, again), key, &script.by_code(key, args)).await,
            result => result,
        }
    }

    /// Sends a command to the server that has the key.
    pub(super) async fn send(
        &self,
        (lane, again): (Lane, Again),
        key: &[u8],
        command: &Cmd,
    ) -> Result<(Value, Sent), Failure> {
        let (mut asked, mut redirects, mut resend) = (None, REDIRECTS, again == Again::Yes);
        loop {
            let (node, message) = match asked.take() {
                Some(node) => (node, Message::Asking(command)),
                None => {
                    let node = self.servers.node(key).inspect_err(|_| self.servers.refresh())?;
                    (node, Message::Command(command))
                }
            };
            let sent = match self.connect(node.clone(), lane).await {
                Ok(sent) => sent,
                // Nothing was sent, and the server is not the one to send it to any more.
                Err(Failure::Left) if redirects > 0 => {
                    redirects -= 1;
                    continue;
                }
                Err(failure) => {
                    self.servers.refresh();
                    return Err(failure);
                }
            };
            let failure = match sent.send(message, self.times.responding).await {
                Ok(value) => return Ok((value, sent)),
                Err(failure) => failure,
            };
            if let Some(redirect) = failure.redirect()
                && redirects > 0
            {
                redirects -= 1;
                asked = self.servers.redirected(key, &node, redirect);
                continue;
            }
            if !failure.is_outcome_unknown() {
                // The node is cut off from the others, or its slots have moved.
                if failure.is_cluster_down() {
                    self.servers.refresh();
                }
                return Err(failure);
            }
            self.servers.refresh();
            if !resend {
                return Err(failure);
            }
            resend = false;
        }
    }

    /// Sends a command to one node, whichever keys it has; once more if the connection is lost.
    pub(super) async fn send_to(&self, node: &Arc<Node>, message: Message<'_>) -> Result<Value, Failure> {
        let send = async || self.connect(node.clone(), Lane::Work).await?.send(message, self.times.responding).await;
        match send().await {
            Err(failure) if failure.breaks_connection() => send().await,
            result => result,
        }
    }

    /// Waits until at least `replicas` have what was sent, and returns how many have it.
    pub(super) async fn wait(&self, sent: &Sent, replicas: u32, within: Duration) -> Result<u64, Failure> {
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(redis_millis(within).max(1));
        let limit = self.times.responding.saturating_add(self.times.replicating);
        let found = sent.send(Message::Command(&wait), limit).await?;
        redis::from_redis_value(found).map_err(Failure::reply)
    }
}
