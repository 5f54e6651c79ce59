//! What the user of the URL may do.

use std::{borrow::Cow, error::Error, fmt, sync::Arc};

use redis::Value;

use super::{
    RedisStore,
    cluster::tag,
    error::{Failure, refuses_writes},
    node::{Message, Node},
    scripts::CHECK,
};
use crate::lease::OwnerToken;

/// How many random keys are tried to find one of a node. In a cluster of a thousand nodes one in a
/// thousand is.
const TRIES: u32 = 100_000;

impl RedisStore {
    /// Sends every command that a step may send, for a key that does not exist, so that nothing
    /// changes.
    pub(super) async fn check_privileges(&self) -> Result<(), Failure> {
        self.connections.on_each_master(|node| self.check_node(node)).await
    }

    async fn check_node(&self, node: Arc<Node>) -> Result<(), Failure> {
        let Some(key) = self.probe_key(&node) else { return Ok(()) };
        let mut set = redis::cmd("SET");
        set.arg(&key).arg("").arg("XX").arg("GET").arg("PX").arg(1);
        self.allowed("SET", self.connections.send_to(&node, Message::Command(&set)).await)?;
        for (name, call) in [("EVAL", CHECK.by_code(&key, &[])), ("EVALSHA", CHECK.by_hash(&key, &[]))] {
            let Some(value) = self.allowed(name, self.connections.send_to(&node, Message::Command(&call)).await)?
            else {
                continue;
            };
            self.allowed_in_script(value)?;
        }
        if self.replicas.is_some() {
            let mut wait = redis::cmd("WAIT");
            wait.arg(0).arg(1);
            self.allowed("WAIT", self.connections.send_to(&node, Message::Command(&wait)).await)?;
        }
        if self.connections.servers.in_cluster() {
            // With a command behind it: alone it would apply to another call's.
            self.allowed("SET", self.connections.send_to(&node, Message::Asking(&set)).await)?;
        }
        Ok(())
    }

    /// An unused key under the prefix that the node owns; `None` if it owns none.
    fn probe_key(&self, node: &Arc<Node>) -> Option<Vec<u8>> {
        let random = OwnerToken::random().ok()?;
        // Where the prefix has a hash tag, one node has all keys.
        let tries = if tag(self.prefix.as_bytes()).is_some() { 1 } else { TRIES };
        (0..tries).find_map(|number| {
            let key = [self.prefix.as_bytes(), random.as_bytes(), &[0; 12], &number.to_be_bytes()].concat();
            let owner = self.connections.servers.node(&key).ok()?;
            Arc::ptr_eq(&owner, node).then_some(key)
        })
    }

    /// Separates a missing privilege from what passes by itself: a server that is full or has too
    /// few replicas refuses any write, after it has checked the privilege.
    fn allowed(&self, command: &'static str, result: Result<Value, Failure>) -> Result<Option<Value>, Failure> {
        match result.map_err(|failure| failure.lacking(command)) {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.is_write_refused() || failure.is_forgotten() => Ok(None),
            Err(Failure::Lacking(lacking)) => Err(Failure::Lacking(lacking.under(&self.prefix))),
            Err(failure) => Err(failure),
        }
    }

    /// Reads what `lua/check.lua` returns: the command that failed and why, or nothing.
    fn allowed_in_script(&self, value: Value) -> Result<(), Failure> {
        let failed: Option<(String, String)> = redis::from_redis_value(value).map_err(Failure::reply)?;
        match failed {
            None => Ok(()),
            Some((_, why)) if why.split(' ').next().is_some_and(refuses_writes) => Ok(()),
            Some((command, why)) => Err(Failure::Lacking(Lacking::of(command, &why).under(&self.prefix))),
        }
    }
}

/// What the user may not do.
#[derive(Clone, Debug)]
pub(super) struct Lacking {
    command: Cow<'static, str>,
    /// The keys are what the user lacks, not the command.
    keys: bool,
    /// What the names of all keys begin with.
    prefix: Option<Arc<str>>,
}

impl Lacking {
    /// Reads why a server refuses a command.
    pub(super) fn of(command: impl Into<Cow<'static, str>>, why: &str) -> Self {
        Self { command: command.into(), keys: why.contains("access") && why.contains("key"), prefix: None }
    }

    fn under(self, prefix: &Arc<str>) -> Self {
        Self { prefix: Some(prefix.clone()), ..self }
    }
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command.to_ascii_uppercase();
        match self.keys {
            true => write!(f, "the keys of the store may not be read and written with `{command}`; ")?,
            false => write!(f, "the command `{command}` is not allowed; ")?,
        }
        write!(f, "grant it with `ACL SETUSER <user> +{}", command.to_ascii_lowercase())?;
        if let Some(prefix) = &self.prefix {
            // What a pattern would read as a wildcard.
            let prefix: String = prefix.chars().fold(String::new(), |mut escaped, character| {
                if "*?[]\\".contains(character) {
                    escaped.push('\\');
                }
                escaped.push(character);
                escaped
            });
            write!(f, " ~{prefix}*")?;
        }
        f.write_str("`")
    }
}

impl Error for Lacking {}
