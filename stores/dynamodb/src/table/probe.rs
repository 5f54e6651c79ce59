//! Reads the time from the responses.

use std::{sync::Arc, time::Instant};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::BeforeDeserializationInterceptorContextRef,
    },
    error::BoxError,
};

use crate::service_time::ServiceTime;

/// Takes the `Date` header of the response to one request.
#[derive(Debug)]
pub(crate) struct Probe {
    time: Arc<ServiceTime>,
    sent: Instant,
}

impl Probe {
    pub(super) fn new(time: &Arc<ServiceTime>) -> Self {
        Self { time: time.clone(), sent: Instant::now() }
    }
}

impl Intercept for Probe {
    fn name(&self) -> &'static str {
        "ServiceTime"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(date) = context.response().headers().get("date") {
            self.time.observe(date, self.sent);
        }
        Ok(())
    }
}
