//! The parts of a runtime, which its clones and attempts share.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{
    background::Background, claims::Claims, deferred::Deferrals, environment::Environment,
    open_claims::OpenClaims, options::RuntimeOptions, process::Process, renewer::Renewer,
    store_calls::StoreCalls, subject::Subject, timing::with_retry, waiters::Waiters,
};
use crate::{
    error::StoreError, fingerprint::RequestDigest, policy::Policy, protocol::Claim, store::Store,
};

pub(super) struct RuntimeParts {
    pub(super) options: Arc<RuntimeOptions>,
    pub(super) store: StoreCalls,
    pub(super) waiters: Arc<Waiters>,
    pub(super) renewer: Arc<Renewer>,
    /// Ends of attempts, and claims to be given back, that the store does not have yet.
    pub(super) deferrals: Arc<Deferrals>,
    pub(super) claims: Claims,
    /// Attempts whose claim is part of a transaction.
    pub(super) open: Arc<OpenClaims>,
    background: Background,
    /// Set once the store has passed its check.
    checked: OnceCell<()>,
}

impl RuntimeParts {
    /// Creates the parts of a runtime that belongs to this process and uses this environment.
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: RuntimeOptions,
        process: Process,
        environment: Environment,
    ) -> Self {
        let options = Arc::new(options);
        let store = StoreCalls::new(store, &options, process, environment);
        let waiters = Arc::new(Waiters::new(options.waiters_per_key));
        let renewer = Arc::new(Renewer::new(store.clone()));
        let deferrals = Arc::new(Deferrals::new(
            store.clone(),
            options.clone(),
            renewer.clone(),
            waiters.clone(),
        ));
        let claims =
            Claims::new(store.clone(), options.clone(), waiters.clone(), deferrals.clone());
        let open = Arc::new(OpenClaims::new(waiters.clone()));
        let (background, checked) = (Background::default(), OnceCell::new());
        Self { options, store, waiters, renewer, deferrals, claims, open, background, checked }
    }

    /// Returns once keys may be claimed: the background thread runs, and the store has passed its
    /// check.
    pub(super) fn ready(&self) -> impl Future<Output = Result<(), StoreError>> {
        let started = self.background.start(&self.deferrals);
        let checked = self.checked.initialized();
        async move {
            started?;
            // Boxed: keeps the caller's future small, since all but the first claim find the store
            // checked.
            if checked { Ok(()) } else { Box::pin(self.check_once()).await }
        }
    }

    /// Creates the claim of a new attempt.
    pub(super) fn new_claim(
        &self,
        subject: Subject,
        digest: RequestDigest,
        policy: &Policy,
    ) -> Result<Claim, StoreError> {
        let keys = &self.options.fingerprint_keys;
        let principal = subject.principal.map(|principal| keys.sign_principal(principal));
        let owner = self.store.draw_owner()?;
        Ok(Claim::new(keys.sign(digest), owner)
            .with_policy(policy)
            .with_principal(principal)
            .with_operation(subject.operation))
    }

    /// Checks the store, whether it has passed before or not.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        with_retry(|| self.store.call("check", |store| store.check())).await?;
        // Claims need not check the store again; if another call was first, that is the same.
        let _ = self.checked.set(());
        Ok(())
    }

    async fn check_once(&self) -> Result<(), StoreError> {
        // The time limit includes the wait for other claims: if the check fails, each waiting claim
        // repeats it in turn.
        let check = || with_retry(|| self.store.call("check", |store| store.check()));
        let checked = self.checked.get_or_try_init(check);
        self.store.limit("check", Box::pin(checked)).await.copied()
    }
}
