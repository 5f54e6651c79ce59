//! Which cases fail for which fault.

use super::*;

/// A mutant whose clock the suite can move.
struct ShiftedStore(Mutant);

#[async_trait::async_trait]
impl TestedStore for ShiftedStore {
    fn store(&self) -> &dyn Store {
        &self.0
    }

    async fn advance(&self, by: Duration) {
        self.0.clock.advance(by);
    }

    async fn set_back(&self, by: Duration) -> bool {
        self.0.clock.set_back(by);
        true
    }
}

/// The cases that a store with this fault fails.
async fn failed_cases(fault: Fault) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for case in CASES {
        let subject = Arc::new(ShiftedStore(Mutant::new(fault)));
        if tokio::spawn(async move { case.run(subject).await }).await.is_err() {
            failed.push(case.name());
        }
    }
    failed
}

#[tokio::test]
async fn each_fault_fails_its_case() {
    assert_eq!(failed_cases(Fault::None).await, [""; 0]);
    for (fault, case) in DETECTED_BY {
        let failed = failed_cases(*fault).await;
        assert!(failed.contains(case), "{fault:?} failed {failed:?}");
    }
}
