//! What the README promises.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    backend::{Backend, keyring_line},
    program::Program,
};

const README: &str = include_str!("../README.md");

/// The JSON of the README, by the heading before it.
fn shapes() -> BTreeMap<String, Value> {
    let (mut heading, mut block, mut found) = (String::new(), None::<String>, BTreeMap::new());
    for line in README.lines() {
        match (&mut block, line) {
            (Some(json), "```") => {
                found.insert(heading.clone(), serde_json::from_str(json).expect(&heading));
                block = None;
            }
            (Some(json), line) => *json += line,
            (None, "```json") => block = Some(String::new()),
            (None, line) => {
                if let Some(title) = line.strip_prefix("### ") {
                    heading = title.trim_matches('`').to_owned();
                }
            }
        }
    }
    found
}

/// Asserts that two values have the same members. One that is `null` may have any in the other.
fn assert_same_shape(place: &str, documented: &Value, written: &Value) {
    match (documented, written) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(documented), Value::Object(written)) => {
            let names = |object: &serde_json::Map<String, Value>| {
                object.keys().cloned().collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(names(documented), names(written), "{place}");
            for (name, documented) in documented {
                assert_same_shape(&format!("{place}.{name}"), documented, &written[name]);
            }
        }
        (Value::Array(documented), Value::Array(written)) => {
            if let (Some(documented), Some(written)) = (documented.first(), written.first()) {
                assert_same_shape(&format!("{place}[0]"), documented, written);
            }
        }
        (Value::String(_), Value::String(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::Bool(_), Value::Bool(_)) => {}
        other => panic!("{place}: {other:?}"),
    }
}

#[tokio::test]
async fn the_json_is_what_the_readme_shows() {
    let backend = Backend::sqlite().await;
    let id = backend.held("k", "re_123").await.to_string();
    let reason = ["--reason", "the bank has re_123", "--yes"];
    let resolve = ["resolve", &id, "--status", "201", "--header", "a: b", "--body", "{}"];
    let resolve = [&resolve[..], &reason].concat();
    let erase = [&["erase", "--scope", "user:alice"][..], &reason].concat();
    let error = backend.program(&["show", "00000000", "--json"]).fails(3);
    let mut written = BTreeMap::from([("error", serde_json::from_str(&error).unwrap())]);
    for arguments in [
        &["list"][..],
        &["explain", &id],
        &["stats"],
        &["doctor"],
        &resolve,
        &["show", &id],
        &["log"],
        &erase,
        &["purge"],
        &["migrate"],
    ] {
        written.insert(arguments[0], backend.program(arguments).json());
    }
    let reseal = backend.program(&["reseal", "--yes"]);
    written.insert("reseal", reseal.with("IDEMPOTENCY_KEYRING", &keyring_line(1)).json());
    let shapes = shapes();
    assert_eq!(shapes.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>());
    for (command, documented) in shapes {
        assert_same_shape(&command, &documented, &written[command.as_str()]);
    }
}

#[test]
fn every_command_is_in_the_readme() {
    let help = Program::new(&["--help"]).text();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<_> = commands.lines().map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10, "{help}");
    for command in commands.into_iter().flatten().filter(|command| *command != "help") {
        assert!(README.contains(&format!("`{command}")), "{command}");
    }
}
