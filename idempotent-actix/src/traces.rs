//! Links from replays to the trace of the first run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use idempotent_http::recording::TraceContext;

type Current = dyn Fn() -> Option<TraceContext> + Send + Sync;
type Link = dyn Fn(&TraceContext) + Send + Sync;

/// The application's functions for its tracing system, if it has set any.
#[derive(Default)]
pub(crate) struct Traces(Option<(Box<Current>, Box<Link>)>);

impl Traces {
    pub(crate) fn new(
        current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
        link: impl Fn(&TraceContext) + Send + Sync + 'static,
    ) -> Self {
        Self(Some((Box::new(current), Box::new(link))))
    }

    /// The identity of the current span.
    pub(crate) fn current(&self) -> Option<TraceContext> {
        let (current, _) = self.0.as_ref()?;
        catch_unwind(AssertUnwindSafe(current)).unwrap_or_else(|_| {
            tracing::error!("the function that returns the current trace panicked");
            None
        })
    }

    /// Links the current span to that of the first run.
    pub(crate) fn link(&self, first: Option<&TraceContext>) {
        let (Some((_, link)), Some(first)) = (&self.0, first) else { return };
        if catch_unwind(AssertUnwindSafe(|| link(first))).is_err() {
            tracing::error!("the function that links traces panicked");
        }
    }
}
