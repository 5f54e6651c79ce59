//! The trace of the request that was run.

use std::fmt;

use bytes::{Buf, Bytes};
use idempotent_core::RecordingError;

/// What identifies a span in a distributed trace
/// ([W3C Trace Context](https://www.w3.org/TR/trace-context/) §3.2.2): 24 bytes. A recording keeps
/// that of the request that was run, so that a replay can be linked to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The id of the trace, `trace-id`.
    pub trace_id: [u8; 16],
    /// The id of the span, `parent-id`.
    pub span_id: [u8; 8],
}

impl TraceContext {
    pub(super) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let (trace_id, span_id) = bytes.split_at_mut(16);
        trace_id.copy_from_slice(&self.trace_id);
        span_id.copy_from_slice(&self.span_id);
        bytes
    }

    pub(super) fn take(rest: &mut Bytes) -> Result<Self, RecordingError> {
        let (mut trace_id, mut span_id) = ([0; 16], [0; 8]);
        rest.try_copy_to_slice(&mut trace_id).map_err(super::damaged)?;
        rest.try_copy_to_slice(&mut span_id).map_err(super::damaged)?;
        Ok(Self { trace_id, span_id })
    }
}

/// Both ids in hexadecimal digits, with a hyphen between them.
impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
