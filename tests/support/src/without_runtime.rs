//! Calls from outside of a tokio runtime.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, RecordId, Runtime, Store, StoreError,
    protocol::{Claim, Renewal, Resolution},
    runtime::RuntimeOptions,
};

use crate::{decision, error_chain};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a call to its end without any runtime.
pub fn call<T>(call: impl Future<Output = T>) -> T {
    let (mut call, waker) = (pin!(call), Waker::from(Arc::new(Unpark(thread::current()))));
    loop {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

/// Asserts that a call succeeded, or was refused permanently because there is no runtime.
pub fn assert_done_or_refused<T>(name: &str, result: Result<T, StoreError>) {
    if let Err(error) = result {
        let message = error_chain(&error);
        assert!(!error.is_transient() && message.contains("Tokio runtime"), "{name}: {message}");
    }
}

/// Makes every call of a store, and asserts that each succeeds or is refused permanently.
pub fn call_all(store: &(impl Store + Clone)) {
    let id = RecordId::from_bytes([7; 32]);
    let owner = OwnerToken::from_bytes([1; 16]);
    let (lease, longest) = (Lease { id, owner }, Duration::from_secs(60));
    let fingerprint = Fingerprint::from_bytes([1; Fingerprint::BYTES]);
    let claim = Claim::new(fingerprint, owner).with_lease(longest).with_ttl(longest);
    let renewals = [Renewal::new(lease, longest)];
    assert_done_or_refused("migrate", call(store.migrate()));
    assert_done_or_refused("check", call(store.check()));
    assert_done_or_refused("claim", call(store.claim(&id, &claim)));
    assert_done_or_refused("claim", call(store.claim(&id, &claim)));
    assert_done_or_refused("renew", call(store.renew(&renewals)));
    assert_done_or_refused("complete", call(store.complete(&lease, &Bytes::from_static(b"done"))));
    assert_done_or_refused("release", call(store.release(&lease)));
    assert_done_or_refused("abandon", call(store.abandon(&lease, Abandoned::Hold)));
    assert_done_or_refused("look up", call(store.look_up(&id)));
    assert_done_or_refused(
        "resolve",
        call(store.resolve(&id, &owner, &Resolution::Release, &decision(&id))),
    );
    assert_done_or_refused("purge", call(store.purge(10)));
    let runtime = Runtime::new(store.clone(), RuntimeOptions::default());
    assert_done_or_refused("a runtime's call", call(runtime.look_up(&id)));
    let Some(transactions) = store.transactions() else { return };
    let other = RecordId::from_bytes([8; 32]);
    assert_done_or_refused("begin", call(transactions.begin()).map(|begun| call(begun.commit())));
    assert_done_or_refused(
        "claim in a transaction",
        call(transactions.claim(&other, &claim, longest)),
    );
}
