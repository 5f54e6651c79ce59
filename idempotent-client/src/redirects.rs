//! Where a guarded request may be redirected to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use reqwest::{
    Url,
    redirect::{Action, Attempt, Policy},
};

/// As many as reqwest follows by default.
const LONGEST_CHAIN: usize = 10;

tokio::task_local! {
    /// The rules for the attempt that the task is sending.
    static SENDING: Arc<Redirects>;
}

/// A policy for [`reqwest::ClientBuilder::redirect`] that sends a guarded request only to its own
/// server. [`ClientIdempotency::client`](crate::ClientIdempotency::client) sets it.
///
/// Of a guarded request it follows 307 and 308, which repeat the request as it is, to the same
/// origin and to those that are
/// [allowed](crate::ClientIdempotency::allow_redirects_to). It follows nothing else: the
/// response with the redirect is the last one. `otherwise` is the policy for all other requests of
/// the client.
#[must_use]
pub fn redirect_policy(otherwise: Policy) -> Policy {
    Policy::custom(move |redirect| match SENDING.try_with(Arc::clone) {
        Ok(sending) => sending.decide(redirect),
        Err(_) => otherwise.redirect(redirect),
    })
}

/// The rules for the redirects of one attempt, and whether it was redirected.
pub(crate) struct Redirects {
    allowed: Vec<Url>,
    was_redirected: AtomicBool,
}

impl Redirects {
    pub(crate) fn new(allowed: &[Url]) -> Arc<Self> {
        Arc::new(Self { allowed: allowed.to_vec(), was_redirected: AtomicBool::new(false) })
    }

    /// Applies the rules to the requests that a future sends.
    pub(crate) async fn apply_to<T>(self: Arc<Self>, sending: impl Future<Output = T>) -> T {
        SENDING.scope(self, sending).await
    }

    /// Whether the request was sent to another URL by the rules.
    pub(crate) fn was_redirected(&self) -> bool {
        self.was_redirected.load(Ordering::Relaxed)
    }

    fn decide(&self, redirect: Attempt<'_>) -> Action {
        let repeats_request = matches!(redirect.status().as_u16(), 307 | 308);
        let first = redirect.previous().first();
        let mut allowed = first.into_iter().chain(&self.allowed);
        let is_allowed = allowed.any(|url| url.origin() == redirect.url().origin());
        if !repeats_request || !is_allowed || redirect.previous().len() > LONGEST_CHAIN {
            return redirect.stop();
        }
        self.was_redirected.store(true, Ordering::Relaxed);
        redirect.follow()
    }
}
