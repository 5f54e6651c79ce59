//! The table, and requests that are sent again for a bounded time.

use std::{error::Error, sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout_at},
};

use super::{probe::Probe, refusal::Refusal};
use crate::{error::CallFailure, service_time::ServiceTime};
use idempotent_core::store::Effect;

/// The pause before a call is sent again, doubled each time up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// One table of the service.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) client: Client,
    pub(crate) name: Arc<str>,
    pub(crate) time: Arc<ServiceTime>,
    pub(crate) response_timeout: Duration,
    pub(crate) call_timeout: Duration,
}

/// What the service responded, and whether an earlier request of the same call may have taken
/// effect.
pub(crate) struct Response<T> {
    pub(crate) value: T,
    pub(crate) in_doubt: bool,
}

impl Table {
    /// Sends a request until the service executes or refuses it, or the time is over.
    ///
    /// Every request must pass for its own second sending: the first one may have taken effect.
    pub(crate) async fn call<T, E, F>(
        &self,
        send: impl Fn(Probe) -> F,
    ) -> Result<Response<Result<T, E>>, CallFailure>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: Refusal + ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        Handle::try_current().map_err(|_| CallFailure::NoRuntime)?;
        let until = Instant::now() + self.call_timeout;
        let (mut in_doubt, mut pause) = (false, FIRST_PAUSE);
        loop {
            let sent = send(Probe::new(&self.time));
            let within = until.min(Instant::now() + self.response_timeout);
            let failure = match timeout_at(within, sent).await {
                Ok(Ok(value)) => return Ok(Response { value: Ok(value), in_doubt }),
                Ok(Err(SdkError::ServiceError(error))) if error.err().is_refusal() => {
                    return Ok(Response { value: Err(error.into_err()), in_doubt });
                }
                Ok(Err(SdkError::ServiceError(error))) if error.err().failure().is_some() => {
                    error.err().failure().unwrap_or(CallFailure::ResponseTimeout)
                }
                Ok(Err(error)) => CallFailure::from_sdk(error),
                Err(_) => CallFailure::ResponseTimeout,
            };
            in_doubt |= failure.class().effect == Effect::Unknown;
            // Full jitter, so that processes that were throttled together do not return together.
            let next = Instant::now() + pause.mul_f64(fastrand::f64());
            if !failure.is_transient() || next >= until {
                return Err(failure);
            }
            tracing::debug!(error = %failure, "a call to DynamoDB failed; retrying");
            sleep(next - Instant::now()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
