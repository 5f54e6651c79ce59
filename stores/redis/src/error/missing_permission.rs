//! A privilege that the user in the URL lacks.

use std::{borrow::Cow, fmt, sync::Arc};

/// A command or keys that the user may not use.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) struct MissingPermission {
    command: Cow<'static, str>,
    /// Whether the user lacks access to the keys rather than to the command.
    keys: bool,
    /// The prefix of all keys.
    prefix: Option<Arc<str>>,
}

impl MissingPermission {
    /// Interprets the error with which a server refused a command.
    pub(crate) fn of(command: impl Into<Cow<'static, str>>, why: &str) -> Self {
        Self {
            command: command.into(),
            keys: why.contains("access") && why.contains("key"),
            prefix: None,
        }
    }

    /// Names the prefix of the keys to which the user needs access.
    pub(crate) fn under(self, prefix: &Arc<str>) -> Self {
        Self { prefix: Some(prefix.clone()), ..self }
    }
}

impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command.to_ascii_uppercase();
        match self.keys {
            true => {
                write!(f, "the keys of the store may not be read and written with `{command}`; ")?
            }
            false => write!(f, "the command `{command}` is not allowed; ")?,
        }
        write!(f, "grant it with `ACL SETUSER <user> +{}", command.to_ascii_lowercase())?;
        if let Some(prefix) = &self.prefix {
            // Escapes what an ACL pattern would treat as a wildcard.
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
