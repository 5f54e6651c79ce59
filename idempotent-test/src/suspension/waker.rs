//! A waker that keeps the stack whenever it is cloned.

#![expect(unsafe_code, reason = "only a hand-written waker notices that it is cloned")]

use std::{
    mem::ManuallyDrop,
    sync::Arc,
    task::{RawWaker, RawWakerVTable, Waker},
};

use super::{Stacks, stack::Stack};

struct Tracing {
    inner: Waker,
    stacks: Stacks,
}

/// Returns a waker that wakes as `inner` does, and adds the stack of each clone.
pub(super) fn tracing(inner: Waker, stacks: Stacks) -> Waker {
    let data = Arc::into_raw(Arc::new(Tracing { inner, stacks })).cast();
    // SAFETY: the functions of the table treat the data as the `Arc` that it was made from, which
    // is `Send` and `Sync`: `Waker` and the mutex of `Stacks` are. Each clone has a count of its
    // own, and `wake` and `drop` give up one.
    unsafe { Waker::from_raw(RawWaker::new(data, &TABLE)) }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_raw);

/// # Safety
/// The pointer is that of an `Arc<Tracing>`, whose count the caller keeps.
unsafe fn borrowed(data: *const ()) -> ManuallyDrop<Arc<Tracing>> {
    // SAFETY: as the caller says. The count is not given up.
    ManuallyDrop::new(unsafe { Arc::from_raw(data.cast()) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: `RawWaker` passes the data that it was made with.
    let tracing = unsafe { borrowed(data) };
    tracing.stacks.push(Stack::capture());
    RawWaker::new(Arc::into_raw(Arc::clone(&tracing)).cast(), &TABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: as for `clone`, and a waker that wakes by value gives up its count.
    let tracing: Arc<Tracing> = unsafe { Arc::from_raw(data.cast()) };
    tracing.inner.wake_by_ref();
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: as for `clone`.
    let tracing = unsafe { borrowed(data) };
    tracing.inner.wake_by_ref();
}

unsafe fn drop_raw(data: *const ()) {
    // SAFETY: as for `clone`, and a waker that is dropped gives up its count.
    drop(unsafe { Arc::<Tracing>::from_raw(data.cast()) });
}
