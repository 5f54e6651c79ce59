//! The features that `tests/run` enables.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cargo;

/// The databases whose tests are a tier of their own, so that the other tiers do not compile them.
const OWN_TIERS: [&str; 2] = ["mysql", "dynamodb"];

#[test]
fn the_usual_tests_enable_every_feature_but_those_of_databases_with_a_tier_of_their_own() {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]).concat();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let mut expected = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if OWN_TIERS.iter().any(|database| name == format!("idempotent-{database}")) {
            continue;
        }
        let features = package["features"].as_object().unwrap().keys();
        // One that begins with an underscore is enabled by others.
        let features = features.filter(|feature| {
            *feature != "default"
                && !feature.starts_with('_')
                && !OWN_TIERS.contains(&feature.as_str())
        });
        expected.extend(features.map(|feature| format!("{name}/{feature}")));
    }
    let script = include_str!("../run");
    let (_, list) = script.split_once("--features \"").unwrap();
    let (list, _) = list.split_once('"').unwrap();
    let enabled: BTreeSet<_> = list.split_whitespace().map(str::to_owned).collect();
    assert_eq!(enabled, expected);
    for database in OWN_TIERS {
        assert!(script.contains(&format!("--exclude idempotent-{database}")), "{database}");
    }
}
