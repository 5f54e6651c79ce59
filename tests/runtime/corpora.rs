//! The inputs that the fuzzers have kept (`fuzz/corpora`) break no promise.

use std::panic::catch_unwind;

use fuzz_targets::{TARGETS, Target};

/// The least number of inputs of each target. A corpus has more, because `fuzz/run` replaces it.
const LEAST: [(&str, usize); 9] = [
    ("canonical_json", 5),
    ("digest", 4),
    ("duration", 5),
    ("headers", 4),
    ("key", 5),
    ("multipart", 3),
    ("recording", 4),
    ("redis_record", 4),
    ("url", 5),
];

/// Runs a target on its corpus, and returns the number of inputs.
fn replay(target: &Target) -> usize {
    let inputs = target.corpus();
    for (line, input) in (1..).zip(&inputs) {
        let outcome = catch_unwind(|| (target.run)(input));
        assert!(outcome.is_ok(), "line {line} of corpora/{}.txt fails", target.name);
    }
    inputs.len()
}

#[test]
fn every_input_that_the_fuzzers_have_kept_passes() {
    let replayed = TARGETS.each_ref().map(|target| (target.name, replay(target)));
    for ((target, inputs), (expected, least)) in replayed.into_iter().zip(LEAST) {
        assert_eq!(target, expected);
        assert!(inputs >= least, "{target}: only {inputs} inputs were replayed");
    }
}
