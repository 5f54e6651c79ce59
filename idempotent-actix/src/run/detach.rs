//! Moving work whose client has disconnected to a task of its own.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use actix_web::rt;
use futures_util::{FutureExt, future::LocalBoxFuture};
use tracing::{Instrument, Span};

/// Runs `work` to its end in a task of its own, inside `span`. Where no task can be started, `work` is dropped and a warning is logged:
/// a claim that it holds expires with its lease.
///
/// actix drops the future of a request when the client disconnects (HTTP/1.1); called from that future's `Drop`.
pub(crate) fn detach<T: 'static>(work: LocalBoxFuture<'static, T>, span: Span) {
    // `spawn` panics where no `LocalSet` runs, and no function tells so beforehand. The work is not part of the future that a panic
    // drops, because a panic in one of its own destructors would then abort the process.
    let work = Rc::new(Cell::new(Some(work)));
    let taken = work.clone();
    let finish = async move {
        let Some(work) = taken.take() else { return };
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            tracing::error!("a guarded operation whose client had disconnected panicked outside of its handler");
        }
    };
    let why = match catch_unwind(AssertUnwindSafe(|| rt::spawn(finish.instrument(span.clone())))) {
        // A `LocalSet` that is being dropped accepts a task and drops it before `spawn` returns.
        Ok(task) if task.is_finished() => "the server's worker is stopping",
        Ok(_) => {
            let _entered = span.enter();
            tracing::debug!("a client disconnected; its guarded operation goes on in a task of its own");
            return;
        }
        Err(_) => "no tokio `LocalSet` is running",
    };
    let _entered = span.enter();
    tracing::warn!(why, "a client disconnected and its guarded operation is not finished; its lease expires");
    // Its destructors may panic, and this is called from one.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(work.take())));
}
