//! The connection on which a command was sent.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::node::{Connection, ConnectionRole, Message, Node};
use crate::error::CallFailure;

/// The connection on which a command was sent.
pub(crate) struct ConnectionRoute {
    node: Arc<Node>,
    connection: Arc<Connection>,
    role: ConnectionRole,
}

impl ConnectionRoute {
    pub(crate) fn on(node: Arc<Node>, connection: Arc<Connection>, role: ConnectionRole) -> Self {
        Self { node, connection, role }
    }

    /// Whether the server can compare a value before it replaces it.
    pub(crate) fn compares_values(&self) -> bool {
        self.node.compares_values()
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
