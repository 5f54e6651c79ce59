//! The ways in which a request is sent.

use std::time::Duration;

use actix_web::http::StatusCode;
use bytes::Bytes;
use futures_util::future::join_all;
use idempotent_actix::RequestOutcome;
use tokio::{
    task::LocalSet,
    time::{Instant, timeout},
};

use crate::{
    failure::{At, Trial, Unproved},
    observation::{Counts, Observer},
    process::{Call, Fault},
    request::RequestUnderTest,
    response::TestResponse,
    service::{RunningProcess, TestService},
    suspension::{Place, Polled, Until, poll_until},
};

/// How many requests with one key are sent at once.
const AT_ONCE: usize = 20;
/// How long retries may take until their outcome is definitive.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long calls to a store fail. The guard repeats some until the end of the lease.
const OUTAGE: Duration = Duration::from_secs(1);
/// How many waits of a request are tried.
const MOST_WAITS: usize = 100;
/// How many requests are sent to interrupt one at a place.
const ATTEMPTS: usize = 3;
/// The pause between two retries.
const PAUSE: Duration = Duration::from_millis(2);

/// The trials of one proof.
pub(super) struct Trials<'a> {
    service: &'a TestService,
    request: RequestUnderTest,
    observer: Observer,
    only: Option<&'a str>,
    count: usize,
    /// The effects of one request, and the status of its response.
    once: (Counts, StatusCode),
}

/// How a request ends before its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// Its client disconnects.
    HangUp,
    /// Its process dies.
    Death,
}

impl<'a> Trials<'a> {
    pub(super) fn new(
        service: &'a TestService,
        request: RequestUnderTest,
        observer: Observer,
        only: Option<&'a str>,
    ) -> Self {
        let once = (Counts::default(), StatusCode::OK);
        Self { service, request, observer, only, count: 0, once }
    }

    /// How many trials there were.
    pub(super) fn count(&self) -> Result<usize, Unproved> {
        match self.only {
            Some(only) if self.count == 0 => Err(Unproved::no_trial(only)),
            _ => Ok(self.count),
        }
    }

    /// Sends the first request and its retry. Returns where it has waited, and its calls
    /// to the store.
    pub(super) async fn first(&mut self) -> Result<(Vec<Place>, Vec<Call>), Unproved> {
        let (process, key, before) = self.begin(None).await;
        let request = process.call(self.request.with_key(&key));
        let Polled { end: Ok(response), places } =
            poll_until(request, Until::End, &process.store).await
        else {
            return Err(Unproved::new(&Trial::First, "it was interrupted"));
        };
        self.check_first(&response)?;
        let calls = process.store.calls();
        let after = self.observer.read().await;
        self.once = (after.since(&before), response.status);
        let retry = process.call(self.request.with_key(&key)).await;
        if retry.outcome != Some(RequestOutcome::Replayed) {
            let what = format!(
                "it was not replayed: the response with status {} is not recorded; prove a \
                 request whose response is",
                response.status
            );
            return Err(Unproved::new(&Trial::Repeat, what));
        }
        if let Some(difference) = response.difference(&retry) {
            let what = format!("its response has {difference}");
            return Err(Unproved::new(&Trial::Repeat, what));
        }
        if let Some(found) = self.observer.read().await.since(&after).any() {
            let what = format!(
                "{found}, although the handler did not run: an extractor or a middleware does it, \
                 or a task of the first run, later"
            );
            return Err(Unproved::new(&Trial::Repeat, what));
        }
        Ok((places, calls))
    }

    fn check_first(&self, response: &TestResponse) -> Result<(), Unproved> {
        let what = match response.outcome {
            _ if response.headers.contains_key("idempotency-disabled") => {
                "the guard is turned off with `enabled(false)`".into()
            }
            Some(RequestOutcome::Ran) => return Ok(()),
            Some(outcome) => format!(
                "its outcome is `{outcome}`, with status {}; prove a request that succeeds",
                response.status
            ),
            None => format!(
                "no guarded handler has responded, but something with status {}",
                response.status
            ),
        };
        Err(Unproved::new(&Trial::First, what))
    }

    /// Sends the request, and then another body with its key, if there is one.
    pub(super) async fn other_body(&mut self, body: Option<Bytes>) -> Result<(), Unproved> {
        let trial = Trial::OtherBody;
        if !self.is_selected(&trial) {
            return Ok(());
        }
        self.count += 1;
        let (process, key, _) = self.begin(None).await;
        process.call(self.request.with_key(&key)).await;
        let before = self.observer.read().await;
        let Some(other) = self.request.with_other_body(&key, body) else { return Ok(()) };
        let response = process.call(other).await;
        if response.outcome != Some(RequestOutcome::KeyReused) {
            let what = format!(
                "it got status {} instead of 422; if the handler cannot read the body that the kit \
                 has made, set one with `other_body`; if the body is not part of the fingerprint, \
                 call `without_other_body`",
                response.status
            );
            return Err(Unproved::new(&trial, what));
        }
        match self.observer.read().await.since(&before).any() {
            Some(found) => Err(Unproved::new(&trial, found.to_string())),
            None => Ok(()),
        }
    }

    /// Sends several requests with one key at once.
    pub(super) async fn at_once(&mut self) -> Result<(), Unproved> {
        let trial = Trial::AtOnce(AT_ONCE);
        if !self.is_selected(&trial) {
            return Ok(());
        }
        self.count += 1;
        let (process, key, before) = self.begin(None).await;
        let requests = (0..AT_ONCE).map(|_| process.call(self.request.with_key(&key)));
        let responses = join_all(requests).await;
        let ran = responses.iter().filter(|each| each.outcome == Some(RequestOutcome::Ran)).count();
        if ran > 1 {
            return Err(Unproved::new(&trial, format!("the handler ran {ran} times")));
        }
        self.judge(&trial, &process, None, &key, &before).await
    }

    /// Interrupts requests at each of these places. Returns those that were not reached.
    pub(super) async fn interrupt_at_each(
        &mut self,
        by: Interruption,
        places: &[Place],
    ) -> Result<Vec<String>, Unproved> {
        let mut missed = Vec::new();
        for (number, place) in places.iter().enumerate() {
            if !self.is_selected(&by.trial(number, place.clone())) {
                continue;
            }
            let attempts = if number < MOST_WAITS { ATTEMPTS } else { 0 };
            let (until, mut is_reached) = (Until::Places(&places[..=number]), false);
            for _ in 0..attempts {
                is_reached |= self.interrupt(by, number, until).await?;
                if is_reached {
                    break;
                }
            }
            if !is_reached {
                missed.push(place.to_string());
            }
        }
        // A request may wait more often than the first one did.
        for number in places.len()..MOST_WAITS {
            if self.only.is_some() || !self.interrupt(by, number, Until::Wait(number)).await? {
                break;
            }
        }
        Ok(missed)
    }

    /// Interrupts a request. Returns whether it has waited there.
    async fn interrupt(
        &mut self,
        by: Interruption,
        number: usize,
        until: Until<'_>,
    ) -> Result<bool, Unproved> {
        let (process, key, before) = self.begin(None).await;
        let request = process.call(self.request.with_key(&key));
        let Polled { end: Err(request), mut places } =
            poll_until(request, until, &process.store).await
        else {
            return Ok(false);
        };
        self.count += 1;
        let place = places.pop().unwrap_or(Place::Unknown);
        let trial = by.trial(number, place);
        match by {
            Interruption::HangUp => {
                // Dropping a request is what actix does when its client has disconnected.
                drop(request);
                self.judge(&trial, &process, None, &key, &before).await?;
            }
            Interruption::Death => {
                process.store.die();
                {
                    // An operation whose request is dropped goes on in a task. A set of tasks that
                    // never runs drops it.
                    let dead = LocalSet::new();
                    let _entered = dead.enter();
                    drop(request);
                }
                let next = self.service.process(None).await;
                self.judge(&trial, &next, Some(&process), &key, &before).await?;
            }
        }
        Ok(true)
    }

    /// Lets this call to the store fail, and all further ones of the request for a second: the
    /// guard repeats those that fail once.
    pub(super) async fn fail(
        &mut self,
        number: usize,
        call: Call,
        fault: Fault,
    ) -> Result<(), Unproved> {
        let trial = Trial::StoreFault { number: number + 1, call: call.as_str(), fault };
        if !self.is_selected(&trial) {
            return Ok(());
        }
        self.count += 1;
        let (process, key, before) = self.begin(Some((number, fault))).await;
        let mut first = process.call(self.request.with_key(&key));
        let answered = timeout(OUTAGE, &mut first).await;
        process.store.heal();
        if answered.is_err() {
            first.await;
        }
        self.judge(&trial, &process, None, &key, &before).await
    }

    /// Starts a process, chooses a key, and reads the effects so far.
    async fn begin(&self, fault: Option<(usize, Fault)>) -> (RunningProcess, String, Counts) {
        let process = self.service.process(fault).await;
        (process, format!("trial-{:016x}", fastrand::u64(..)), self.observer.read().await)
    }

    /// Sends the request until its outcome is definitive, and compares its effects with those of
    /// one request.
    async fn judge(
        &self,
        trial: &Trial,
        process: &RunningProcess,
        dead: Option<&RunningProcess>,
        key: &str,
        before: &Counts,
    ) -> Result<(), Unproved> {
        let response = self.retry(trial, process, dead, key).await?;
        // The effects of an operation whose outcome is unknown may be missing: a person decides.
        let is_unknown = matches!(
            response.outcome,
            Some(RequestOutcome::OutcomeUnknown | RequestOutcome::BecameHeld)
        );
        let (once, status) = &self.once;
        let effects = self.observer.read().await.since(before);
        if let Some(found) = effects.difference(once, is_unknown) {
            return Err(Unproved::new(trial, found.to_string()));
        }
        if !is_unknown && *status != response.status {
            let what = format!("the retry got status {} instead of {status}", response.status);
            return Err(Unproved::new(trial, what));
        }
        Ok(())
    }

    /// Sends the request until its outcome is definitive.
    async fn retry(
        &self,
        trial: &Trial,
        process: &RunningProcess,
        dead: Option<&RunningProcess>,
        key: &str,
    ) -> Result<TestResponse, Unproved> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(dead) = dead {
                let expired = dead.store.expire_leases().await;
                expired
                    .map_err(|error| Unproved::new(trial, format!("the store failed: {error}")))?;
            }
            let response = process.call(self.request.with_key(key)).await;
            let what = match response.outcome {
                Some(
                    RequestOutcome::Ran
                    | RequestOutcome::Replayed
                    | RequestOutcome::OutcomeUnknown
                    | RequestOutcome::BecameHeld,
                ) => return Ok(response),
                Some(RequestOutcome::KeyReused | RequestOutcome::Refused) | None => {
                    format!("the retry was refused with status {}", response.status)
                }
                Some(_) if Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Some(outcome) => format!(
                    "retries had no definitive outcome within {PATIENCE:?}, but `{outcome}`"
                ),
            };
            return Err(Unproved::new(trial, what));
        }
    }

    /// Whether a trial is to be run.
    fn is_selected(&self, trial: &Trial) -> bool {
        self.only.is_none_or(|only| only == trial.name())
    }
}

impl Interruption {
    fn trial(self, number: usize, place: Place) -> Trial {
        let at = At { number, place };
        match self {
            Self::HangUp => Trial::HangUp(at),
            Self::Death => Trial::Death(at),
        }
    }
}
