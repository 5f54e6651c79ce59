//! The proof that a handler is safe to retry.

use std::{collections::BTreeSet, env, fmt, future::IntoFuture};

use actix_web::{http::header::HeaderName, test::TestRequest};
use bytes::Bytes;
use futures_util::{FutureExt, future::LocalBoxFuture};
use tokio::task::LocalSet;

use crate::{
    failure::{ONLY, Unproved},
    observation::Observer,
    process::Fault,
    proof::trials::{Interruption, Trials},
    request::{RequestUnderTest, Template},
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
/// * with a store whose calls fail, lose their acknowledgment, or hang, from each of them on until
///   the request has its response, at most for a second.
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
    source: Source,
    observer: Observer,
    header: HeaderName,
    other_body: OtherBody,
    only: Option<String>,
}

/// The body with which a key is used again.
enum OtherBody {
    Changed,
    Set(Bytes),
    Omitted,
}

/// Where requests come from.
enum Source {
    Request(Box<TestRequest>),
    Made(Box<dyn Fn(&str) -> TestRequest>),
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
    /// those after the hundredth wait, and those that other requests did not reach in three runs,
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
            write!(f, "; waits that were not tried: {}, such as {first}", untried_waits.len())?;
        }
        f.write_str(")")
    }
}

impl TestService {
    /// Begins the proof that the handler of this request is safe to retry: see [`Proof`]. Each
    /// trial adds a key to it.
    pub fn prove(&self, request: TestRequest) -> Proof<'_> {
        Proof::new(self, Source::Request(Box::new(request)))
    }

    /// Begins the proof for requests whose key is not in a header, or that must differ in something
    /// else than the key: this function makes the request with a key. No request with another body
    /// is sent.
    pub fn prove_by(&self, make: impl Fn(&str) -> TestRequest + 'static) -> Proof<'_> {
        Proof::new(self, Source::Made(Box::new(make)))
    }
}

impl<'a> Proof<'a> {
    fn new(service: &'a TestService, source: Source) -> Self {
        Self {
            service,
            source,
            observer: Observer::new(async || Vec::<(String, i64)>::new()),
            header: HeaderName::from_static("idempotency-key"),
            other_body: OtherBody::Changed,
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

    /// Sets the other body with which the key of a request is sent again, so that it gets 422. The
    /// default is the request's body with one number or text of a JSON document changed, or one
    /// digit of another body.
    pub fn other_body(mut self, body: impl Into<Bytes>) -> Self {
        self.other_body = OtherBody::Set(body.into());
        self
    }

    /// Sends no request with another body. Use it if the body is not part of the fingerprint.
    pub fn without_other_body(mut self) -> Self {
        self.other_body = OtherBody::Omitted;
        self
    }

    /// Runs only the first request and the trial with this name, which the error of another proof
    /// has.
    pub fn only(mut self, trial: impl Into<String>) -> Self {
        self.only = Some(trial.into());
        self
    }

    async fn prove(self) -> Result<Proved, Unproved> {
        let request = match self.source {
            Source::Request(request) => {
                RequestUnderTest::Template(Template::read(*request).await, self.header)
            }
            Source::Made(make) => RequestUnderTest::Made(make),
        };
        let mut trials = Trials::new(self.service, request, self.observer, self.only.as_deref());
        let (places, calls) = trials.first().await?;
        match self.other_body {
            OtherBody::Changed => trials.other_body(None).await?,
            OtherBody::Set(body) => trials.other_body(Some(body)).await?,
            OtherBody::Omitted => {}
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
