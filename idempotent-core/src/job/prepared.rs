//! A run before its claim.

use serde::Serialize;
use tracing::Span;

use super::{
    definition::{ClaimMode, Job},
    outcome::RunError,
};
use crate::{
    error::StoreError,
    fingerprint::{Digester, RequestDigest, canonical_json},
    key::Key,
    record_id::RecordId,
    runtime::{Admission, Attempt, Runtime, Subject, Verdict},
    scope::ScopeId,
};

pub(super) struct Prepared {
    pub(super) runtime: Runtime,
    job: Job,
    subject: Subject,
    digest: RequestDigest,
}

impl Prepared {
    pub(super) fn new<I: Serialize + ?Sized, E>(
        runtime: &Runtime,
        job: &Job,
        scope: &ScopeId,
        key: &Key,
        input: &I,
    ) -> Result<Self, RunError<E>> {
        if scope.is_empty() {
            return Err(RunError::EmptyScope);
        }
        let digest = digest_of(job, input).map_err(|source| RunError::Input { source })?;
        let namespace = runtime.namespace().unwrap_or_default();
        let id = RecordId::new(namespace, scope, job.name, key);
        let mut subject = Subject::new(id).with_operation(job.name);
        if !scope.is_global() {
            subject = subject.with_principal(scope.principal());
        }
        Ok(Self { runtime: runtime.clone(), job: *job, subject, digest })
    }

    /// The span of the run.
    pub(super) fn span(&self) -> Span {
        tracing::info_span!(
            "idempotency",
            operation = self.job.name,
            id = %self.subject.id.short(),
        )
    }

    /// Claims the key by lease.
    pub(super) async fn begin(&self) -> Result<Result<Attempt, Verdict>, StoreError> {
        let Self { runtime, job, subject, digest } = self;
        runtime.begin(subject.clone(), *digest, &job.policy).await.map(admitted)
    }

    /// Claims the key as the job says, if the store has transactions.
    pub(super) async fn begin_with_transaction(
        &self,
    ) -> Result<Result<Attempt, Verdict>, StoreError> {
        let Self { runtime, job, subject, digest } = self;
        match job.claim {
            ClaimMode::Lease => {
                runtime.verify_transactions()?;
                self.begin().await
            }
            ClaimMode::Transaction => {
                let begun = runtime.begin_in_transaction(subject.clone(), *digest, &job.policy);
                Box::pin(begun).await.map(admitted)
            }
        }
    }
}

fn admitted(admission: Admission) -> Result<Attempt, Verdict> {
    match admission {
        Admission::Proceed(attempt) => Ok(attempt),
        Admission::Rejected(verdict) => Err(verdict),
    }
}

/// The digest of an input, with as many parts as that of an HTTP request. The first part is the
/// method there, so the empty one here distinguishes the digest from that of any request.
fn digest_of<I: Serialize + ?Sized>(
    job: &Job,
    input: &I,
) -> Result<RequestDigest, serde_json::Error> {
    let text = serde_json::to_vec(input)?;
    let (form, text) = match canonical_json(&text) {
        Some(canonical) => ("json", canonical),
        None => ("raw", sorted(input).unwrap_or(text)),
    };
    let mut digester = Digester::new(["", job.name, "", "", form]);
    digester.update(&text);
    Ok(digester.finish())
}

/// The text of an input without a canonical form, such as one with an integer above 2⁵³. Members
/// are sorted, because those of a hash map have another order in each process. `None` if a
/// [`Value`](serde_json::Value) cannot represent the input exactly.
fn sorted<I: Serialize + ?Sized>(input: &I) -> Option<Vec<u8>> {
    let mut value = serde_json::to_value(input).ok()?;
    value.sort_all_objects();
    serde_json::to_vec(&value).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const JOB: Job = Job::new("job");

    fn digest<I: Serialize + ?Sized>(input: &I) -> RequestDigest {
        digest_of(&JOB, input).unwrap()
    }

    #[test]
    fn equal_inputs_have_equal_digests() {
        let members = ["a", "b", "c", "d", "e", "f"];
        for number in [1, u64::MAX] {
            let map = || members.map(|member| (member, number)).into_iter().collect();
            let (one, two): (HashMap<_, _>, HashMap<_, _>) = (map(), map());
            assert_eq!(digest(&one), digest(&two), "{number}");
        }
    }

    #[test]
    fn different_inputs_have_different_digests() {
        let digests = [
            digest(&1),
            digest(&2),
            digest("1"),
            digest(&u64::MAX),
            digest(&(u64::MAX - 1)),
            digest(&u128::MAX),
            digest(&(u128::MAX - 1)),
            digest_of(&Job::new("other"), &1).unwrap(),
        ];
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(one), "{at}");
        }
    }

    #[test]
    fn the_digest_of_an_input_is_fixed_for_ever() {
        // Another value here would make every key in every store a mismatch.
        let mut digester = Digester::new(["", "job", "", "", "json"]);
        digester.update(br#"{"a":1}"#);
        assert_eq!(digest(&HashMap::from([("a", 1)])), digester.finish());
    }
}
