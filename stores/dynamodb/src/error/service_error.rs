//! What the errors that the service returns mean.

use idempotent_core::store::{
    Cause::{self, Permanent, Temporary},
    ConnectionState::Good,
    Effect, ErrorClass,
};

use super::missing_permission::MissingPermission;

/// An error that the service has returned.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{code}{}", self.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
pub(crate) struct ServiceError {
    code: String,
    message: Option<String>,
    status: Option<u16>,
}

/// The codes that a call of the store can meet. Any other code is judged by its HTTP status.
const CODES: &[(&str, ErrorClass)] = &[
    // The capacity of the table, of a partition, of the account, or of the index.
    ("ProvisionedThroughputExceededException", refused(Temporary)),
    ("RequestLimitExceeded", refused(Temporary)),
    ("ThrottlingException", refused(Temporary)),
    ("ThrottlingError", refused(Temporary)),
    // A transaction is changing the item.
    ("TransactionConflict", refused(Temporary)),
    ("TransactionConflictException", refused(Temporary)),
    ("TransactionInProgressException", unknown(Temporary)),
    // Another Region is changing the item.
    ("ReplicatedWriteConflictException", refused(Temporary)),
    // Too many tables are being created.
    ("LimitExceededException", refused(Temporary)),
    ("InternalServerError", unknown(Temporary)),
    ("InternalFailure", unknown(Temporary)),
    ("ServiceUnavailable", unknown(Temporary)),
    ("ServiceUnavailableException", unknown(Temporary)),
    // The credentials are renewed before the next call, or the clock of the machine is corrected.
    ("ExpiredToken", refused(Temporary)),
    ("ExpiredTokenException", refused(Temporary)),
    ("RequestExpired", refused(Temporary)),
    ("RequestTimeTooSkewed", refused(Temporary)),
    ("AccessDeniedException", refused(Permanent)),
    ("AccessDenied", refused(Permanent)),
    ("UnrecognizedClientException", refused(Permanent)),
    ("InvalidClientTokenId", refused(Permanent)),
    ("IncompleteSignatureException", refused(Permanent)),
    ("InvalidSignatureException", refused(Permanent)),
    ("MissingAuthenticationTokenException", refused(Permanent)),
    ("ResourceNotFoundException", refused(Permanent)),
    // The table is being created by another process, for which `migrate` waits.
    ("ResourceInUseException", refused(Permanent)),
    ("ItemCollectionSizeLimitExceededException", refused(Permanent)),
    // An item that would exceed 400 KB, for example.
    ("ValidationException", refused(Permanent)),
    ("ValidationError", refused(Permanent)),
];

/// The class of an error that says that nothing was done.
pub(crate) const fn refused(cause: Cause) -> ErrorClass {
    ErrorClass::new(Effect::None, cause, Good)
}

/// The class of an error after which the call may have taken effect.
pub(crate) const fn unknown(cause: Cause) -> ErrorClass {
    ErrorClass::new(Effect::Unknown, cause, Good)
}

impl ServiceError {
    pub(crate) fn new(code: Option<&str>, message: Option<&str>, status: Option<u16>) -> Self {
        let code = code.unwrap_or("an error without a code").to_owned();
        Self { code, message: message.map(str::to_owned), status }
    }

    pub(crate) fn class(&self) -> ErrorClass {
        match CODES.iter().find(|(code, _)| *code == self.code) {
            Some((_, class)) => *class,
            None if self.status == Some(429) => refused(Temporary),
            None if self.status.is_some_and(|status| status >= 500) => unknown(Temporary),
            None => ErrorClass::new(Effect::Unknown, Permanent, Good),
        }
    }

    /// Whether the table, the index or a setting of the table does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == "ResourceNotFoundException"
    }

    /// Whether the table already exists, or is being changed.
    pub(crate) fn is_in_use(&self) -> bool {
        self.code == "ResourceInUseException"
    }

    pub(crate) fn is_invalid(&self) -> bool {
        self.code == "ValidationException"
    }

    pub(crate) fn missing_permission(&self) -> Option<MissingPermission> {
        let is_denied = matches!(self.code.as_str(), "AccessDeniedException" | "AccessDenied");
        is_denied.then(|| MissingPermission::of(self.message.as_deref().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: &str, status: u16) -> ErrorClass {
        ServiceError::new(Some(code), None, Some(status)).class()
    }

    #[test]
    fn every_code_has_one_class() {
        for (at, (code, known)) in CODES.iter().enumerate() {
            assert_eq!(class(code, 400), *known);
            assert!(CODES[..at].iter().all(|(other, _)| other != code), "{code}");
        }
    }

    #[test]
    fn an_unknown_code_is_judged_by_its_status() {
        assert_eq!(class("BrownoutException", 503), unknown(Temporary));
        assert_eq!(class("SlowDown", 429), refused(Temporary));
        assert_eq!(class("TeapotException", 400), unknown(Permanent));
    }

    #[test]
    fn only_a_denial_is_a_missing_permission() {
        for (code, denied) in [("AccessDeniedException", true), ("ValidationException", false)] {
            let error = ServiceError::new(Some(code), Some("no"), Some(400));
            assert_eq!(error.missing_permission().is_some(), denied, "{code}");
        }
    }
}
