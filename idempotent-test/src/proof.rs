//! The proof that a handler is safe to retry.

use std::{collections::BTreeSet, env, fmt, future::IntoFuture};

use actix_web::{http::header::HeaderName, test::TestRequest};
use futures_util::{FutureExt, future::LocalBoxFuture};
use tokio::task::LocalSet;

use crate::{
    failure::{ONLY, Unproved},
    observation::Observer,
    process::Fault,
    proof::trials::{Interruption, Trials},
    request::Template,
    service::TestService,
};

mod trials;

/// Proves that a handler is safe to retry, as far as a test can. Created by
/// [`TestService::prove`]; `await` it.
///
/// The request is sent once, and then, each time with a key of its own:
///
/// * again with the same key, which must get the same response, and with another body, which must
///   get 422 (`key_reused`);
/// * twenty times at once, of which one may run;
/// * with a client that hangs up at each point at which the request waits;
/// * with a process that dies at each such point: nothing of it runs any further, and its lease
///   expires;
/// * with a store each of whose calls fails, loses its acknowledgment, or hangs.
///
/// After each of these the request is sent until its outcome is definitive. Then the
/// [observed](Self::observing) effects must be those of one request.
///
/// # What it cannot see
/// * Effects that are not observed.
/// * A death between two points at which the request waits: nothing else runs meanwhile, so it is
///   the same as a death at the earlier one, unless the handler blocks its thread.
/// * Threads and other processes: a task that the handler has spawned survives the death of the
///   process here, and is found because its effect is repeated.
/// * Waits that only sometimes occur: each trial is one run.
#[must_use = "a proof does nothing unless it is awaited"]
pub struct Proof<'a> {
    service: &'a TestService,
    request: TestRequest,
    observer: Observer,
    header: HeaderName,
    checks_body: bool,
    only: Option<String>,
}

/// A handler is safe to retry, as far as the trials show.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proved {
    /// How many trials there were, besides the first request and its retry.
    pub trials: usize,
    /// How often the first request waited.
    pub waits: usize,
    /// Places at which the first request has waited, and at which no other request was interrupted:
    /// those after the hundredth wait, and those that other requests did not reach in five runs,
    /// since they did not have to wait there.
    pub untried_waits: Vec<String>,
    /// How often the guard of the first request called the store.
    pub calls: usize,
}

impl fmt::Display for Proved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trials, waits, untried_waits, calls } = self;
        write!(f, "safe to retry in {trials} trials ({waits} waits, {calls} calls to the store")?;
        if let Some(first) = untried_waits.first() {
            write!(f, "; {} were not tried, such as {first}", untried_waits.len())?;
        }
        f.write_str(")")
    }
}

impl<'a> Proof<'a> {
    pub(crate) fn new(service: &'a TestService, request: TestRequest) -> Self {
        Self {
            service,
            request,
            observer: Observer::new(async || Vec::<(String, i64)>::new()),
            header: HeaderName::from_static("idempotency-key"),
            checks_body: true,
            only: env::var(ONLY).ok(),
        }
    }

    /// Sets what the test observes of the handler's effects: how often each of them has happened so
    /// far, with its name, such as the rows of a table and the calls that a fake of another service
    /// has received. Without it, only responses are compared.
    ///
    /// The function is called until it says the same twice, 2 ms apart: a task that the handler has
    /// spawned may have its effect a little later.
    ///
    /// # Panics
    /// The proof panics if a count is greater than `i128::MAX`.
    pub fn observing<C, N, V>(mut self, observe: impl AsyncFn() -> C + 'static) -> Self
    where
        C: IntoIterator<Item = (N, V)>,
        N: Into<String>,
        V: TryInto<i128, Error: fmt::Debug>,
    {
        self.observer = Observer::new(observe);
        self
    }

    /// Sets the header of the key; the default is `Idempotency-Key`.
    pub fn header(mut self, header: HeaderName) -> Self {
        self.header = header;
        self
    }

    /// Sends no request with another body. Use it if the body is not part of the fingerprint.
    pub const fn without_other_body(mut self) -> Self {
        self.checks_body = false;
        self
    }

    /// Runs only the first request and the trial with this name, which the error of another proof
    /// has.
    pub fn only(mut self, trial: impl Into<String>) -> Self {
        self.only = Some(trial.into());
        self
    }

    async fn prove(self) -> Result<Proved, Unproved> {
        let template = Template::read(self.request).await;
        let mut trials =
            Trials::new(self.service, template, self.header, self.observer, self.only.as_deref());
        let (places, calls) = trials.first().await?;
        if self.checks_body {
            trials.other_body().await?;
        }
        trials.at_once().await?;
        let mut untried_waits = BTreeSet::new();
        for interruption in [Interruption::HangUp, Interruption::Death] {
            untried_waits.extend(trials.interrupt_at_each(interruption, &places).await?);
        }
        for (number, call) in calls.iter().enumerate() {
            for fault in Fault::ALL {
                trials.fail(number, *call, fault).await?;
            }
        }
        Ok(Proved {
            trials: trials.count()?,
            waits: places.len(),
            untried_waits: untried_waits.into_iter().collect(),
            calls: calls.len(),
        })
    }
}

impl<'a> IntoFuture for Proof<'a> {
    type Output = Result<Proved, Unproved>;
    type IntoFuture = LocalBoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // The operation of a client that has hung up goes on in a task of this set.
        async move { LocalSet::new().run_until(self.prove()).await }.boxed_local()
    }
}
