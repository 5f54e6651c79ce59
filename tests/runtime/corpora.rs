//! The inputs of the fuzz targets, those written by hand and those that the fuzzer has kept, break
//! no promise.

use std::{panic::catch_unwind, process::Command};

use fuzz_targets::{TARGETS, Target};

/// The least number of inputs of a target: its seeds, and its corpus, which `fuzz/run` replaces.
const LEAST: [(&str, [usize; 2]); 10] = [
    ("canonical_json", [13, 80]),
    ("cost", [19, 140]),
    ("digest", [4, 3]),
    ("duration", [12, 12]),
    ("headers", [5, 140]),
    ("key", [14, 50]),
    ("multipart", [5, 18]),
    ("recording", [5, 14]),
    ("redis_record", [14, 6]),
    ("url", [18, 90]),
];

/// Returns the number of inputs in the two folders, and adds those that fail to `failing`.
fn replay(target: &Target, failing: &mut Vec<String>) -> [usize; 2] {
    ["seeds", "corpora"].map(|folder| {
        let inputs = target.inputs(folder);
        for (line, input) in (1..).zip(&inputs) {
            if catch_unwind(|| (target.run)(input)).is_err() {
                failing.push(format!("fuzz/{folder}/{}.txt:{line}", target.name));
            }
        }
        inputs.len()
    })
}

#[test]
fn every_seed_and_every_input_that_the_fuzzer_has_kept_passes() {
    let mut failing = Vec::new();
    let replayed = TARGETS.each_ref().map(|target| (target.name, replay(target, &mut failing)));
    assert!(failing.is_empty(), "{failing:#?}");
    for ((target, inputs), (name, least)) in replayed.into_iter().zip(LEAST) {
        assert_eq!(target, name);
        let enough = inputs.iter().zip(least).all(|(inputs, least)| *inputs >= least);
        assert!(enough, "{name}: only {inputs:?} inputs were replayed");
    }
}

#[test]
fn the_faults_that_prove_the_targets_can_still_be_planted() {
    let check = ["apply", "--check", "fuzz/planted.patch"];
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let checked = Command::new("git").args(check).current_dir(root).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
