use super::*;
use crate::{
    policy::Abandoned,
    runtime::{
        deferred::DeferredEnd, end_action::EndAction, environment::Environment,
        parts::RuntimeParts, process::Process,
    },
    store::{Store, memory::MemoryStore},
};

/// A process that is forked after its runtime has begun to claim must not send the claim, nor defer
/// anything. The test simulates the fork as in `tests/runtime`.
#[tokio::test]
async fn a_claim_that_has_begun_is_not_sent_by_a_forked_process() {
    let store = Arc::new(MemoryStore::new());
    let options = RuntimeOptions::default();
    let parts = RuntimeParts::new(store.clone(), options, Process::another(), Environment::System);
    let digest = RequestDigest::unknown();
    let fingerprint = parts.options.fingerprint_keys.sign(digest);
    let claim = || Claim::new(fingerprint, OwnerToken::random().unwrap());
    let [deferred, new] = [1, 2].map(|number| RecordId::from_bytes([number; 32]));
    let held = EndAction::Abandon(Abandoned::Hold);
    let end = DeferredEnd::new(deferred, claim(), 1, held, Instant::now());
    let _ends = parts.deferrals.show(end);
    let refused = parts.claims.claim_now(&new, &claim(), &digest).await;
    assert!(refused.is_err_and(|error| !error.is_transient()), "the claim was sent");
    assert!(store.look_up(&new).await.unwrap().is_none(), "the claim took effect");
}
