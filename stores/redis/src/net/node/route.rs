//! Commands, and the connections on which they were sent.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value, aio::MultiplexedConnection};

use super::{CallFailure, Connection, ConnectionRole, Node};

/// The connection on which a command was sent.
pub(crate) struct ConnectionRoute {
    pub(crate) node: Arc<Node>,
    connection: Arc<Connection>,
    role: ConnectionRole,
}

impl ConnectionRoute {
    pub(crate) fn on(node: Arc<Node>, connection: Arc<Connection>, role: ConnectionRole) -> Self {
        Self { node, connection, role }
    }

    /// Sends a command on the same connection, and waits for its response as long as bytes arrive
    /// at intervals of at most `within`.
    pub(crate) async fn send(
        &self,
        message: Message<'_>,
        within: Duration,
    ) -> Result<Value, CallFailure> {
        let value = self.node.exchange(&self.connection, message, within).await;
        value.inspect_err(|failure| {
            self.node.record_failure(self.role, &self.connection, failure, within);
        })
    }
}

/// A command to send.
#[derive(Clone, Copy)]
pub(crate) enum Message<'a> {
    Command(&'a Cmd),
    /// A command for a node that is importing the key's slot.
    Asking(&'a Cmd),
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
                    .map_err(|error| CallFailure::from(error).or_missing_privilege("ASKING"))?;
                value
            }
        };
        Ok(value.extract_error()?)
    }
}
