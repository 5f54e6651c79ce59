//! Which record is meant.

use test_support::subjects::sqlite::File;

use crate::backend::{Backend, NAMESPACE, OPERATION};

#[tokio::test]
async fn several_records_are_candidates_with_whole_ids() {
    let backend = Backend::sqlite().await;
    let mut ids = Vec::new();
    for number in 0..40 {
        ids.push(backend.completed(&number.to_string()).await.to_string());
    }
    let shared = "0123456789abcdef".chars().map(String::from);
    let matching = |digit: &String| ids.iter().filter(|id| id.starts_with(digit)).count() > 1;
    let digit = shared.into_iter().find(matching).expect("40 ids have 16 first digits");
    let error = backend.program(&["show", &digit]).fails(5);
    let first = ids.iter().find(|id| error.contains(*id)).expect("whole ids");
    assert!(first.starts_with(&digit) && error.contains(OPERATION), "{error}");
    let error = backend.program(&["explain", &digit, "--json"]).fails(5);
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    let candidates = error["candidates"].as_array().unwrap();
    assert!(candidates.len() > 1, "{error}");
    assert!(candidates.iter().all(|one| one["id"].as_str().unwrap().starts_with(&digit)));
}

#[tokio::test]
async fn several_records_with_one_reference_are_ambiguous() {
    let backend = Backend::sqlite().await;
    let ids = [backend.held("a", "re_1").await, backend.held("b", "re_1").await];
    let error = backend.program(&["show", "--reference", "re_1"]).fails(5);
    assert!(ids.iter().all(|id| error.contains(&id.to_string())), "{error}");
    backend.program(&["show", "--reference", "re_2"]).fails(3);
}

#[tokio::test]
async fn a_key_is_found_in_its_namespace_and_scope_only() {
    let backend = Backend::sqlite().await;
    let id = backend.completed("k").await;
    let show = |scope: &str, namespace: &str| {
        let key = ["show", "--key", "k", "--operation", OPERATION];
        let place = ["--scope", scope, "--namespace", namespace];
        backend.program(&[&key[..], &place].concat())
    };
    assert_eq!(show("user:alice", NAMESPACE).json()["id"], id.to_string());
    for (scope, namespace) in
        [("alice", NAMESPACE), ("user:bob", NAMESPACE), ("user:alice", "bank")]
    {
        let error = show(scope, namespace).fails(3);
        assert!(error.contains("check the namespace"), "{error}");
    }
    show("user:", NAMESPACE).fails(2);
    // A key may be a secret, which other users of the machine must not see.
    let file = File::new();
    let [key, scope] = [("key", "k\n"), ("scope", "user:alice\n")].map(|(name, text)| {
        let name = file.path().with_extension(name);
        std::fs::write(&name, text).unwrap();
        name.to_str().unwrap().to_owned()
    });
    let show = ["show", "--operation", OPERATION, "--namespace", NAMESPACE, "--key-file", &key];
    let show = backend.program(&[&show[..], &["--scope-file", &scope]].concat());
    assert_eq!(show.json()["id"], id.to_string());
    let list = backend.program(&["list", "--scope-file", &scope]).json();
    assert_eq!(list["records"].as_array().unwrap().len(), 1);
}
