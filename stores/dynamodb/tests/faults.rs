//! The network and the service fail at each request in turn.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, RecordState, ShortText, Store,
    history::Kind,
    protocol::{ClaimOutcome, Contents, Fence, Note, Removal, Renewal, Replacement, Resolution},
    store::Administration as _,
};
use idempotent_dynamodb::{DynamoDbStore, internals};
use test_support::{
    WAIT_LIMIT, decision,
    servers::dynamodb::{Emulator, Fault, FaultProxy, Gate, open, patient, unique_table},
};
use tokio::task::JoinSet;

use super::helpers::{describe, lease, long, recording, request};

/// What a run of the scenario returned.
type Transcript = Vec<String>;

/// Calls every method, with known keys.
struct Scenario {
    store: DynamoDbStore,
    seen: Transcript,
}

impl Scenario {
    fn note(&mut self, what: &str, outcome: impl Debug) {
        self.seen.push(format!("{what}: {outcome:?}"));
    }

    /// What a record says, but for its times and its owner.
    async fn look(&mut self, what: &str, id: &RecordId) {
        let found = self.store.look_up(id).await.unwrap().map(|found| found.record);
        let shown = found.map(|record: Record| {
            let recording = match &record.state {
                RecordState::Completed(recording) => Some(recording.len()),
                RecordState::InFlight | RecordState::Held => None,
            };
            let kinds: Vec<_> = record.history.entries().map(|entry| entry.kind).collect();
            let notes = record.notes;
            (record.attempt, record.state, recording, record.abandoned, notes, kinds)
        });
        self.note(what, shown);
    }

    async fn run(mut self) -> Transcript {
        self.works().await;
        self.fails().await;
        self.decides().await;
        let log = self.store.audit(None, 100).await.unwrap().entries;
        let log: Vec<_> =
            log.into_iter().map(|entry| (entry.entry.action, entry.entry.before)).collect();
        self.note("log", log);
        self.seen
    }

    /// An attempt that notes, renews and completes.
    async fn works(&mut self) {
        let (store, id, claim) = (self.store.clone(), RecordId::from_bytes([1; 32]), request());
        let owned = lease(id, &claim);
        self.note("claim", store.claim(&id, &claim).await.unwrap());
        let mut note = Note::step(recording("one"));
        note.reference = Some(ShortText::new("pi_1").unwrap());
        self.note("note", store.note(&owned, &note).await.unwrap());
        self.note("step", store.note(&owned, &Note::step(long(600))).await.unwrap());
        self.note("input", store.note(&owned, &Note::input(recording("in"))).await.unwrap());
        let renewal = Renewal::new(owned, Duration::from_secs(60));
        self.note("renew", store.renew(&[renewal]).await.unwrap());
        store.append_history(&id, Kind::Deferred).await.unwrap();
        self.look("noted", &id).await;
        self.note("complete", store.complete(&owned, &long(9_000)).await.unwrap());
        self.note("replay", store.claim(&id, &request()).await.unwrap());
        self.look("completed", &id).await;
    }

    /// Attempts that are released, abandoned and taken over.
    async fn fails(&mut self) {
        let (store, id) = (self.store.clone(), RecordId::from_bytes([2; 32]));
        let [first, second, third] = [request(), request(), request()];
        self.note("claim", store.claim(&id, &first).await.unwrap());
        self.note("release", store.release(&lease(id, &first)).await.unwrap());
        self.note("claim", store.claim(&id, &second).await.unwrap());
        let abandoned = store.abandon(&lease(id, &second), Abandoned::Retry).await.unwrap();
        self.note("abandon", abandoned);
        self.note("take over", store.claim(&id, &third).await.unwrap());
        let completed = store.complete(&lease(id, &third), &recording("done")).await.unwrap();
        self.note("complete", completed);
        self.look("taken over", &id).await;
    }

    /// Keys that operators decide about.
    async fn decides(&mut self) {
        let (store, id, claim) = (self.store.clone(), RecordId::from_bytes([3; 32]), request());
        let owned = lease(id, &claim);
        self.note("claim", store.claim(&id, &claim).await.unwrap());
        self.note("hold", store.abandon(&owned, Abandoned::Hold).await.unwrap());
        let known = Resolution::Complete(recording("known"));
        let audit = decision(&id);
        self.note("resolve", store.resolve(&id, &claim.owner, &known, &audit).await.unwrap());
        let contents = |text| {
            let mut contents = Contents::default();
            contents.recording = recording(text);
            contents
        };
        let operator = OwnerToken::from_bytes([0; 16]);
        let replacement = Replacement::new(operator, contents("known"), contents("sealed"));
        self.note("replace", store.replace(&id, &replacement).await.unwrap());
        self.look("resolved", &id).await;
        let removal = Removal::of_completed(operator);
        self.note("remove", store.remove(&id, &removal, &audit).await.unwrap());
        self.look("removed", &id).await;
    }
}

/// Calls every method of a store.
pub(super) async fn call_everything(store: &DynamoDbStore) {
    Scenario { store: store.clone(), seen: Vec::new() }.run().await;
    let name = ShortText::EMPTY;
    store.resumable(&name, None, 10).await.unwrap();
    store.watched(&Default::default(), None, 10).await.unwrap();
    store.scan(&Default::default(), None, 10).await.unwrap();
    let [low, high] = [0, 0xff].map(|byte| RecordId::from_bytes([byte; 32]));
    store.find(&low, &high, 10).await.unwrap();
}

/// Runs the scenario in a new table behind a proxy with this plan. Returns what it returned, and
/// how many requests it has sent.
async fn run(plan: impl FnMut(u64, &str) -> Option<Fault> + Send + 'static) -> (Transcript, u64) {
    let emulator = Emulator::shared();
    let (table, proxy) = (unique_table(), FaultProxy::start(emulator.port).await);
    open(emulator.port, &table, patient()).migrate().await.unwrap();
    let options = patient().response_timeout(Duration::from_millis(1_500));
    let store = open(proxy.port, &table, options);
    proxy.plan(plan);
    let seen = Scenario { store, seen: Vec::new() }.run().await;
    (seen, proxy.requests())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_any_request_changes_no_outcome() {
    let (expected, requests) = run(|_, _| None).await;
    println!("{requests} requests; {expected:#?}");
    assert!(requests >= 25, "{requests}");
    let mut tried = 0;
    for fault in Fault::TRANSIENT {
        let mut running = JoinSet::new();
        for failing in 0..requests {
            let (fault, expected) = (fault.clone(), expected.clone());
            running.spawn(async move {
                let at = fault.clone();
                let (seen, _) = run(move |number, _| (number == failing).then(|| at.clone())).await;
                for (seen, expected) in seen.iter().zip(&expected) {
                    assert_eq!(seen, expected, "{fault:?} at request {failing}");
                }
                assert_eq!(seen.len(), expected.len());
            });
            // As many as the emulator executes without reaching a time limit.
            if running.len() == 6 {
                running.join_next().await.unwrap().unwrap();
            }
            tried += 1;
        }
        running.join_all().await;
    }
    println!("{tried} faults");
}

/// A service that fails for a while, but not for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_faults_in_a_row_change_no_outcome() {
    let (expected, _) = run(|_, _| None).await;
    let mut rng = fastrand::Rng::with_seed(11);
    let plan = move |_: u64, _: &str| {
        let fault = Fault::TRANSIENT[rng.usize(..Fault::TRANSIENT.len() - 1)].clone();
        (rng.u8(..) < 100).then_some(fault)
    };
    assert_eq!(run(plan).await.0, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_fails_for_ever_is_a_transient_error_within_the_time_limit() {
    let emulator = Emulator::shared();
    let limit = Duration::from_millis(700);
    for fault in Fault::TRANSIENT {
        let proxy = FaultProxy::start(emulator.port).await;
        let options = DynamoDbStore::options().response_timeout(Duration::from_millis(200));
        let table = unique_table();
        let store = open(proxy.port, &table, options.call_timeout(limit));
        open(emulator.port, &table, patient()).migrate().await.unwrap();
        // The store knows the time before the service fails. On a busy machine a response is late.
        while store.look_up(&RecordId::from_bytes([1; 32])).await.is_err() {}
        let failing = fault.clone();
        proxy.plan(move |_, _| Some(failing.clone()));
        let (id, claim) = (RecordId::from_bytes([1; 32]), request());
        let owned = lease(id, &claim);
        // Without a limit it would never end.
        let ended = tokio::time::timeout(WAIT_LIMIT, store.claim(&id, &claim)).await;
        let error = ended.expect("the claim ends").unwrap_err();
        assert!(error.is_transient(), "{fault:?}: {}", describe(&error));
        assert!(store.complete(&owned, &recording("x")).await.unwrap_err().is_transient());
        assert!(store.renew(&[Renewal::new(owned, limit)]).await.unwrap_err().is_transient());
        // What was sent is known once the service responds.
        let store = open(emulator.port, &table, patient());
        let outcome = store.claim(&id, &claim).await.unwrap();
        let is_own = matches!(
            outcome,
            ClaimOutcome::Granted { attempt: 1 }
                | ClaimOutcome::Rejected(idempotent_core::protocol::Rejection::Completed(_))
        );
        assert!(is_own, "{fault:?}: {outcome:?}");
    }
}

/// One of several leases that does not respond does not delay the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_renewed_in_time_is_unknown() {
    let lab = super::helpers::Lab::with_response_timeout(Duration::from_secs(5)).await;
    let claims = [request(), request()];
    let leases = [lab.claimed(&claims[0]).await, lab.claimed(&claims[1]).await];
    lab.proxy.plan(|number, _| (number != 0).then_some(Fault::NoResponse));
    let renewals = leases.map(|owned: Lease| Renewal::new(owned, Duration::from_secs(8)));
    let outcomes = lab.store.renew(&renewals).await.unwrap();
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!(count(idempotent_core::protocol::RenewOutcome::Renewed), 1, "{outcomes:?}");
    assert_eq!(count(idempotent_core::protocol::RenewOutcome::Unknown), 1, "{outcomes:?}");
}

/// The store does not depend on a header that another service might lack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_dates_is_refused() {
    let emulator = Emulator::shared();
    let (table, proxy) = (unique_table(), FaultProxy::start(emulator.port).await);
    open(emulator.port, &table, patient()).migrate().await.unwrap();
    let store = open(proxy.port, &table, patient());
    proxy.plan(|_, _| Some(Fault::NoDate));
    let error = store.claim(&RecordId::from_bytes([1; 32]), &request()).await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("Date"), "{}", describe(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_whose_record_was_removed_meanwhile_are_no_damage() {
    let lab = super::helpers::Lab::new().await;
    let done = lab.completed(&long(100_000)).await.unwrap();
    let gate = Gate::default();
    let waiting = gate.clone();
    // The record, and then its recording.
    lab.proxy.plan(move |number, _| (number == 1).then(|| Fault::Waits(waiting.clone())));
    let store = lab.store.clone();
    let read = tokio::spawn(async move { store.look_up(&done.id).await.unwrap() });
    gate.arrived().await;
    let removal = Removal::of_any(done.owner);
    assert!(lab.direct.remove(&done.id, &removal, &decision(&done.id)).await.unwrap());
    assert_eq!(internals::items(&lab.direct).await.unwrap(), 1, "only the log is left");
    gate.open();
    assert_eq!(read.await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_of_any_length_is_replayed() {
    let lab = super::helpers::Lab::new().await;
    for length in [0, 1, 8 * 1024, 8 * 1024 + 1, 384 * 1024, 384 * 1024 + 1, 1_500_000] {
        let recording: Bytes = long(length);
        let done = lab.completed(&recording).await.unwrap();
        assert_eq!(lab.replay(&done).await, recording, "{length} bytes");
        let chunks = length.div_ceil(384 * 1024).max(1);
        let expected = if length <= 8 * 1024 { 1 } else { 1 + chunks };
        assert_eq!(internals::items(&lab.direct).await.unwrap(), expected, "{length} bytes");
        let removal = Removal::of_any(done.owner);
        assert!(lab.direct.remove(&done.id, &removal, &decision(&done.id)).await.unwrap());
        assert_eq!(internals::clear_log(&lab.direct).await.unwrap(), 1);
        assert_eq!(internals::items(&lab.direct).await.unwrap(), 0, "{length} bytes");
    }
}

/// The response to the third request, which changes the record, is lost. The request is sent again
/// when the gate is opened.
fn lose_the_third(lab: &super::helpers::Lab) -> Gate {
    let gate = Gate::default();
    let waiting = gate.clone();
    lab.proxy.plan(move |number, _| match number {
        2 => Some(Fault::LostResponse),
        3 => Some(Fault::Waits(waiting.clone())),
        _ => None,
    });
    gate
}

/// Another process changes the record after a completion whose response is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_recording_whose_response_is_lost_stays() {
    let lab = super::helpers::Lab::new().await;
    let owned = lab.claimed(&request()).await;
    let gate = lose_the_third(&lab);
    let (store, recording) = (lab.store.clone(), long(9_000));
    let sent = recording.clone();
    let completing = tokio::spawn(async move { store.complete(&owned, &sent).await.unwrap() });
    gate.arrived().await;
    lab.direct.append_history(&owned.id, Kind::Fenced).await.unwrap();
    gate.open();
    assert_eq!(completing.await.unwrap(), Fence::Passed);
    assert_eq!(lab.replay(&owned).await, recording);
}

/// After a step whose response is lost, another step is noted, and the key is taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_step_whose_response_is_lost_stays() {
    let lab = super::helpers::Lab::new().await;
    let owned = lab.claimed(&request()).await;
    let gate = lose_the_third(&lab);
    let (store, step) = (lab.store.clone(), long(600));
    let note = Note::step(step.clone());
    let noting = tokio::spawn(async move { store.note(&owned, &note).await.unwrap() });
    gate.arrived().await;
    let other = Bytes::from_static(b"another");
    lab.direct.note(&owned, &Note::step(other.clone())).await.unwrap();
    lab.expire_lease();
    let taken = lab.direct.claim(&owned.id, &request()).await.unwrap();
    assert_eq!(taken, ClaimOutcome::Granted { attempt: 2 });
    gate.open();
    assert_eq!(noting.await.unwrap(), Fence::Fenced);
    let found = lab.direct.look_up(&owned.id).await.unwrap().unwrap().record;
    assert_eq!(found.notes.steps, [step, other].concat());
}

/// The guide has these numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_takes_as_many_requests_as_the_guide_says() {
    let lab = super::helpers::Lab::new().await;
    let sent = || lab.proxy.requests();
    for (length, completed, replayed) in
        [(500, 1, 1), (8 * 1024, 1, 1), (9_000, 3, 2), (800_000, 5, 4)]
    {
        lab.proxy.clear();
        let owned = lab.claimed(&request()).await;
        assert_eq!(sent(), 1, "claim");
        let recording = long(length);
        lab.store.complete(&owned, &recording).await.unwrap();
        assert_eq!(sent(), 1 + completed, "completion of {length} bytes");
        lab.store.claim(&owned.id, &request()).await.unwrap();
        assert_eq!(sent(), 1 + completed + replayed, "replay of {length} bytes");
    }
    lab.proxy.clear();
    let owned = lab.claimed(&request()).await;
    lab.store.renew(&[Renewal::new(owned, Duration::from_secs(30))]).await.unwrap();
    assert_eq!(sent(), 2, "renewal");
    lab.store.note(&owned, &Note::step(long(512))).await.unwrap();
    assert_eq!(sent(), 3, "note");
    lab.store.note(&owned, &Note::step(long(513))).await.unwrap();
    assert_eq!(sent(), 6, "large note");
    lab.store.abandon(&owned, Abandoned::Retry).await.unwrap();
    assert_eq!(sent(), 7, "abandonment");
    let next = request();
    lab.store.claim(&owned.id, &next).await.unwrap();
    assert_eq!(sent(), 9, "takeover");
    lab.store.release(&lease(owned.id, &next)).await.unwrap();
    // The large step is removed too.
    assert_eq!(sent(), 11, "release");
}
