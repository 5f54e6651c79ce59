//! Detectors are tried on correct stores before their findings count.

use std::{collections::BTreeMap, sync::Arc};

use super::{Detector, Mutant, Variant, backends::Backend, no_ops::NoOp, run_all};

/// How often a detector must pass each correct store.
const RUNS: usize = 2;

/// The correct stores: the shipped one, and those with equivalent statements.
fn correct_variants() -> impl Iterator<Item = (String, Variant)> {
    let no_ops = NoOp::ALL.map(|no_op| (format!("{no_op:?}"), Variant::NoOp(no_op)));
    [("Shipped".to_owned(), Variant::Shipped)].into_iter().chain(no_ops)
}

/// Runs each detector of the mutants on each correct store, and fails if one of them finds
/// anything. Returns how often each has passed.
///
/// A store without a redundant guard is correct, too. The exhaustive check that proves it is one of
/// the detectors.
pub(super) async fn assert_sound(backend: &Arc<Backend>, mutants: &'static [Mutant]) -> usize {
    let detectors = detectors(backend, mutants);
    let runs =
        detectors.iter().flat_map(|detector| correct_variants().map(|store| (*detector, store)));
    let redundant = mutants.iter().filter_map(|mutant| Some((mutant, mutant.detected_by.proof()?)));
    let redundant = redundant.flat_map(|(mutant, proof)| {
        let store =
            (format!("without {:?} of {}", mutant.guard, mutant.file), Variant::Mutant(mutant));
        let mut detectors = Detector::of_all_guards(backend);
        detectors.retain(|detector| *detector != proof);
        detectors.into_iter().chain([proof]).map(move |detector| (detector, store.clone()))
    });
    let runs = runs.flat_map(|run| vec![run; RUNS]).chain(redundant);
    let ran = run_all(runs.map(|(detector, (name, variant))| {
        let backend = backend.clone();
        async move { (detector.name(), name, detector.finds(&backend, variant).await) }
    }))
    .await;
    let (mut passed, mut found) = (BTreeMap::<_, BTreeMap<_, usize>>::new(), Vec::new());
    for (detector, store, finding) in ran {
        *passed.entry(detector).or_default().entry(store.clone()).or_default() +=
            usize::from(finding.is_none());
        found.extend(finding.map(|finding| format!("{detector} on {store}: {finding}")));
    }
    for (detector, passed) in &passed {
        println!("{detector} passed {} runs: {passed:?}", passed.values().sum::<usize>());
    }
    assert!(found.is_empty(), "unsound: {found:#?}");
    RUNS * correct_variants().count()
}

/// The detectors of the mutants, and those that every store must pass.
fn detectors(backend: &Backend, mutants: &'static [Mutant]) -> Vec<Detector> {
    let mut detectors = Detector::of_all_guards(backend);
    for detector in mutants.iter().filter_map(|mutant| mutant.detected_by.detector()) {
        if !detectors.contains(&detector) {
            detectors.push(detector);
        }
    }
    detectors
}

/// Runs a detector on a mutant until it finds something; returns how many runs it took.
pub(super) async fn detect(
    backend: &Arc<Backend>,
    detector: Detector,
    mutant: &'static Mutant,
    tries: usize,
) -> Option<usize> {
    for run in 1..=tries {
        if let Some(finding) = detector.finds(backend, Variant::Mutant(mutant)).await
            && detector.is_for(&finding)
        {
            println!("{}: {}", mutant.name(), finding.lines().next().unwrap_or_default());
            return Some(run);
        }
    }
    None
}
