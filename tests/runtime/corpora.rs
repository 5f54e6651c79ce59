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

/// The lines of a corpus that fail, and the number of its inputs.
fn replay(target: &Target) -> (Vec<usize>, usize) {
    let inputs = target.corpus();
    let fails = |(_, input): &(usize, &Vec<u8>)| catch_unwind(|| (target.run)(input)).is_err();
    let failing = (1..).zip(&inputs).filter(fails).map(|(line, _)| line).collect();
    (failing, inputs.len())
}

#[test]
fn every_input_that_the_fuzzers_have_kept_passes() {
    let mut all_failing = Vec::new();
    for (target, (name, least)) in TARGETS.iter().zip(LEAST) {
        let (failing, inputs) = replay(target);
        assert_eq!(target.name, name);
        assert!(inputs >= least, "{name}: only {inputs} inputs were replayed");
        if !failing.is_empty() {
            all_failing.push(format!("lines {failing:?} of fuzz/corpora/{name}.txt"));
        }
    }
    assert!(all_failing.is_empty(), "{all_failing:#?}");
}
