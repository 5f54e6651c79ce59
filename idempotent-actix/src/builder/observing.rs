//! Settings that let an application observe its operations.

#[cfg(feature = "metrics")]
use std::time::Duration;

use idempotent_core::runtime::HeldOperation;
use idempotent_http::recording::TraceContext;

use super::IdempotencyBuilder;
use crate::traces::Traces;

impl IdempotencyBuilder {
    /// Sets a function that is called for each key that becomes held, to page somebody: the outcome
    /// of its operation is unknown, and no request runs it until an operator
    /// [resolves](crate::Idempotency::resolve) the key.
    ///
    /// The function is called at most once for each attempt, on the thread that held the key, while
    /// a client may wait: hand the news over, to a channel for example, and return. A panic of the
    /// function is logged. The function is not called if the process dies at that moment, nor while
    /// no request has used a key since the lease of its dead process expired: watch the metric
    /// `idempotency_held`, or [list](crate::Idempotency::administrator) the held keys, as well.
    ///
    /// ```
    /// use idempotent_actix::{Idempotency, store::MemoryStore};
    ///
    /// let (pager, _page) = std::sync::mpsc::channel();
    /// let idempotency = Idempotency::builder(MemoryStore::new())
    ///     .on_held(move |held| drop(pager.send(held.to_string())))
    ///     .build();
    /// # let _ = idempotency;
    /// ```
    #[must_use]
    pub fn on_held(mut self, call: impl Fn(&HeldOperation) + Send + Sync + 'static) -> Self {
        self.observation.on_held = Some(Box::new(call));
        self
    }

    /// Sets the average time between two counts of the records in the store, for the
    /// [metrics](crate::metrics); the default is a minute. Its cost is that of
    /// [`Administration::count`](crate::store::Administration::count). `None` counts nothing.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn count_every(mut self, interval: Option<Duration>) -> Self {
        self.options.count_every = interval;
        self
    }

    /// Links each replay to the trace of the request that was run.
    ///
    /// The guard enters a span named `idempotency` from the claim to the end of the operation, with
    /// the fields `operation`, `id` (as logs show it) and `outcome`. In it, `current` is called
    /// when a response is recorded: it returns the identity of that span in the application's
    /// tracing system, 24 bytes that are kept with the recording. `link` is called in the span of
    /// each replay. Both are called while a client waits; a panic is logged.
    ///
    /// With `tracing-opentelemetry`:
    ///
    /// ```
    /// use idempotent_actix::{Idempotency, recording::TraceContext, store::MemoryStore};
    /// use opentelemetry::trace::{
    ///     SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
    /// };
    /// use tracing::Span;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt;
    ///
    /// fn current() -> Option<TraceContext> {
    ///     let span = Span::current().context().span().span_context().clone();
    ///     span.is_valid().then(|| TraceContext {
    ///         trace_id: span.trace_id().to_bytes(),
    ///         span_id: span.span_id().to_bytes(),
    ///     })
    /// }
    ///
    /// fn link(first: &TraceContext) {
    ///     let trace = TraceId::from_bytes(first.trace_id);
    ///     let span = SpanId::from_bytes(first.span_id);
    ///     let state = TraceState::NONE;
    ///     let first = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state);
    ///     Span::current().add_link(first);
    /// }
    ///
    /// let idempotency = Idempotency::builder(MemoryStore::new()).traces(current, link).build();
    /// # let _ = idempotency;
    /// ```
    #[must_use]
    pub fn traces(
        mut self,
        current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
        link: impl Fn(&TraceContext) + Send + Sync + 'static,
    ) -> Self {
        self.settings.traces = Traces::new(current, link);
        self
    }
}
