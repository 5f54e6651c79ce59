//! One connection to a server, and the commands that are sent on it.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use tokio::time::Instant;

use super::waits::Waits;
use crate::{error::CallFailure, net::wire::Wire};

/// What a connection is used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionRole {
    /// Calls for requests.
    Requests,
    /// Renewals, which must not queue behind large recordings.
    Renewals,
    /// Lists for operators, behind which no request must queue.
    Lists,
    /// A call that waits for replicas and blocks its connection meanwhile.
    Replication(usize),
}

/// A command to send.
#[derive(Clone, Copy)]
pub(crate) enum Message<'a> {
    Command(&'a Cmd),
    /// A command for a node that is importing the key's slot.
    Asking(&'a Cmd),
    /// This number of commands in one write. The reply is an array of their replies.
    Batch(&'a Pipeline, usize),
}

impl Message<'_> {
    pub(crate) async fn send(self, wire: &mut MultiplexedConnection) -> Result<Value, CallFailure> {
        let value = match self {
            Self::Command(command) => wire.send_packed_command(command).await?,
            Self::Asking(command) => {
                // In one write, so that no other call's command comes between the two.
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                let [acknowledged, value] =
                    <[Value; 2]>::try_from(wire.send_packed_commands(&both, 0, 2).await?)
                        .map_err(|_| CallFailure::Unexpected)?;
                acknowledged
                    .extract_error()
                    .map_err(|error| CallFailure::from(error).or_refusal_of("ASKING"))?;
                value
            }
            Self::Batch(commands, count) => {
                return Ok(Value::Array(wire.send_packed_commands(commands, 0, count).await?));
            }
        };
        Ok(value.extract_error()?)
    }
}

/// A connection that any number of calls share.
pub(crate) struct Connection {
    wire: Wire,
    /// The epoch of the server in which it was opened.
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    waits: Arc<Waits>,
    /// Whether calls on it end, because nothing arrives on it although the server responds.
    is_silent: AtomicBool,
}

impl Connection {
    pub(crate) fn new(wire: Wire, epoch: u64, number: u64, waits: Arc<Waits>) -> Self {
        Self { wire, epoch, number, waits, is_silent: AtomicBool::new(false) }
    }

    /// Whether calls may use it while the server is in this epoch.
    pub(crate) fn is_open_in(&self, epoch: u64) -> bool {
        self.epoch == epoch && !self.is_silent.load(Ordering::Acquire)
    }

    /// When bytes last arrived, or left after the peer had not accepted any.
    pub(crate) fn last_progress(&self) -> Instant {
        self.wire.traffic.last_progress()
    }

    /// Ends the calls on it, although the server responds on others.
    pub(crate) fn end_calls(&self) {
        self.is_silent.store(true, Ordering::Release);
        self.waits.wake_all();
    }

    /// Sends a command, and waits for its response as long as bytes arrive at intervals of at most
    /// `within` and the server stays in the connection's epoch, which `epoch` returns.
    pub(crate) async fn exchange(
        &self,
        message: Message<'_>,
        within: Duration,
        epoch: impl Fn() -> u64,
    ) -> Result<Value, CallFailure> {
        let (mut commands, traffic) = (self.wire.commands.clone(), &self.wire.traffic);
        let written = traffic.written();
        let mut response = pin!(message.send(&mut commands));
        let mut call = self.waits.call(within);
        let value = poll_fn(|cx| match response.as_mut().poll(cx) {
            Poll::Pending => {
                let is_closed = || !self.is_open_in(epoch());
                call.poll_end(cx, is_closed, || traffic.last_progress()).map(Err)
            }
            ready @ Poll::Ready(_) => ready,
        })
        .await;
        match value {
            Err(lost) if lost.is_connection_lost() && traffic.written() == written => {
                Err(CallFailure::NotSent(Box::new(lost)))
            }
            value => value,
        }
    }
}
