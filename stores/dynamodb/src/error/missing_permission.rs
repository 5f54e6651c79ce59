//! An action that the credentials do not permit.

use std::fmt;

/// An IAM action that is denied, and on what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct MissingPermission {
    action: Option<String>,
    resource: Option<String>,
}

impl MissingPermission {
    /// Reads the message of an `AccessDeniedException`: "User: … is not authorized to perform:
    /// dynamodb:PutItem on resource: arn:aws:dynamodb:… because …".
    pub(crate) fn of(message: &str) -> Self {
        let after = |words: &str| {
            let (_, rest) = message.split_once(words)?;
            rest.split_ascii_whitespace().next().map(str::to_owned)
        };
        Self { action: after("to perform: "), resource: after("on resource: ") }
    }

    /// The same permission, with this action if the service has not named one.
    pub(crate) fn or_action(self, action: &str) -> Self {
        Self { action: self.action.or_else(|| Some(format!("dynamodb:{action}"))), ..self }
    }
}

impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action.as_deref().unwrap_or("an action of DynamoDB");
        write!(f, "`{action}` is denied")?;
        match &self.resource {
            Some(resource) => write!(f, "; allow it on `{resource}`"),
            None => f.write_str("; allow it on the table and its index"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_action_and_the_resource() {
        let denied = MissingPermission::of(
            "User: arn:aws:iam::1:user/pay is not authorized to perform: dynamodb:PutItem on \
             resource: arn:aws:dynamodb:eu-central-1:1:table/payments because no identity-based \
             policy allows the dynamodb:PutItem action",
        );
        assert_eq!(
            denied.to_string(),
            "`dynamodb:PutItem` is denied; allow it on \
             `arn:aws:dynamodb:eu-central-1:1:table/payments`"
        );
        let unnamed = MissingPermission::of("no").or_action("Query");
        assert_eq!(
            unnamed.to_string(),
            "`dynamodb:Query` is denied; allow it on the table and its index"
        );
    }
}
