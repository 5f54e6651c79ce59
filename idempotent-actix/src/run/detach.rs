//! Moving an operation whose client has disconnected to a separate task.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use actix_web::rt;
use futures_util::{FutureExt, future::LocalBoxFuture};
use tracing::{Instrument, Span};

/// Runs `future` to its end in a separate task, inside `span`.
///
/// actix drops the future of a request when the client disconnects (HTTP/1.1); this is called from
/// that future's `Drop`. If no task can be started, `future` is dropped and a warning is logged: a
/// claim that it holds expires with its lease.
pub(crate) fn detach<T: 'static>(future: LocalBoxFuture<'static, T>, span: Span) {
    // `spawn` panics if no `LocalSet` runs, which cannot be tested beforehand. The future is not
    // part of what that panic drops: a panic in one of the future's destructors would then abort
    // the process.
    let future = Rc::new(Cell::new(Some(future)));
    let taken = future.clone();
    let finish = async move {
        let Some(future) = taken.take() else { return };
        if AssertUnwindSafe(future).catch_unwind().await.is_err() {
            tracing::error!(
                "the guard panicked outside of the handler, after its client had disconnected"
            );
        }
    };
    let reason = match catch_unwind(AssertUnwindSafe(|| rt::spawn(finish.instrument(span.clone()))))
    {
        // A `LocalSet` that is being dropped accepts a task and drops it before `spawn` returns.
        Ok(task) if task.is_finished() => "the server's worker is stopping",
        Ok(_) => {
            let _entered = span.enter();
            tracing::debug!(
                "a client disconnected; its guarded operation continues in a separate task"
            );
            return;
        }
        Err(_) => "no tokio `LocalSet` is running",
    };
    let _entered = span.enter();
    tracing::warn!(
        reason,
        "a client disconnected, and its guarded operation cannot continue; the lease will expire"
    );
    // Its destructors may panic, and this is called from one.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(future.take())));
}
