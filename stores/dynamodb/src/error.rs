//! Failures of calls, and whether they are transient.

use std::{error::Error, sync::Arc};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use idempotent_core::{
    RecordId, StoreError,
    store::{
        Cause::{Permanent, Temporary},
        ConnectionState::{Good, Unusable},
        Effect, ErrorClass,
    },
};

pub(crate) use self::{
    missing_permission::MissingPermission,
    service_error::{ServiceError, refused},
    unsuitable_table::UnsuitableTable,
};

mod missing_permission;
mod service_error;
mod unsuitable_table;

/// The name of the store in its errors.
pub(crate) const NAME: &str = "dynamodb";

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error("the service returned an error")]
    Service(#[source] ServiceError),
    #[error("the credentials do not permit an action")]
    MissingPermission(#[source] MissingPermission),
    #[error("the table is not suitable")]
    UnsuitableTable(#[source] UnsuitableTable),
    /// The request could not be built, or there are no credentials.
    #[error("the request could not be sent")]
    NotSent(#[source] Arc<dyn Error + Send + Sync>),
    /// The connection failed, or no credentials could be loaded in time.
    #[error("the service could not be reached, or the connection was lost")]
    Connection(#[source] Arc<dyn Error + Send + Sync>),
    #[error("the service did not respond in time")]
    ResponseTimeout,
    #[error("the service's response cannot be read")]
    InvalidResponse(#[source] Arc<dyn Error + Send + Sync>),
    #[error("the service's responses have no valid `Date` header, from which the store reads time")]
    NoDate,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A record that was searched for.
    #[error("the record {0} cannot be read")]
    UnreadableRecord(RecordId),
    /// Other processes changed the record before each of many attempts to change it.
    #[error("the record is changed by other processes again and again")]
    Contended,
    #[error("the table is still being created")]
    NotActive,
    #[error("the store was called from outside of a Tokio runtime")]
    NoRuntime,
}

/// The item is not one that any version of this library writes. Its record is neither run again nor
/// replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record's item cannot be read")]
pub(crate) struct Unreadable;

impl CallFailure {
    pub(crate) fn into_error(self, operation: &'static str) -> StoreError {
        if matches!(self, Self::Unreadable(_) | Self::UnreadableRecord(_)) {
            StoreError::unreadable(NAME, operation, self)
        } else {
            self.class().into_error(NAME, operation, self)
        }
    }

    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Service(error) => error.class(),
            Self::Connection(_) | Self::ResponseTimeout | Self::InvalidResponse(_) => {
                ErrorClass::new(Effect::Unknown, Temporary, Unusable)
            }
            Self::Contended | Self::NotActive => refused(Temporary),
            Self::NoDate => ErrorClass::new(Effect::Unknown, Permanent, Good),
            Self::MissingPermission(_)
            | Self::UnsuitableTable(_)
            | Self::NotSent(_)
            | Self::Unreadable(_)
            | Self::UnreadableRecord(_)
            | Self::NoRuntime => refused(Permanent),
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        self.class().cause == Temporary
    }

    pub(crate) fn not_built(error: aws_sdk_dynamodb::error::BuildError) -> Self {
        Self::NotSent(Arc::new(error))
    }

    /// Converts an error of the client library. Neither the request nor the response is kept.
    pub(crate) fn from_sdk<E>(error: SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        let status = error.raw_response().map(|response| response.status().as_u16());
        match &error {
            SdkError::ServiceError(_) => {
                let returned = ServiceError::new(error.code(), error.message(), status);
                match returned.missing_permission() {
                    Some(missing) => Self::MissingPermission(missing),
                    None => Self::Service(returned),
                }
            }
            SdkError::TimeoutError(_) => Self::ResponseTimeout,
            SdkError::ConstructionFailure(_) => Self::NotSent(source_of(error)),
            // No credentials, for example.
            SdkError::DispatchFailure(failure) if failure.is_user() => {
                Self::NotSent(source_of(error))
            }
            SdkError::DispatchFailure(_) => Self::Connection(source_of(error)),
            SdkError::ResponseError(_) | _ => Self::InvalidResponse(source_of(error)),
        }
    }
}

fn source_of<E>(error: SdkError<E>) -> Arc<dyn Error + Send + Sync>
where
    E: Error + Send + Sync + 'static,
{
    let source = error.into_source().unwrap_or_else(|error| error.to_string().into());
    source.into()
}
