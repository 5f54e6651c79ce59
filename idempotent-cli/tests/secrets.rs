//! Passwords, secrets and stored responses stay where they are.

use idempotent_core::FingerprintKeys;
use test_support::subjects::sqlite::File;

use crate::{backend::Backend, program::Program};

#[test]
fn a_password_is_never_written() {
    let urls = ["postgres://u:hunter2@127.0.0.1:1/d", "redis://:hunter2@127.0.0.1:1", "hunter2"];
    for url in urls {
        for program in [
            Program::new(&["list", "--timeout", "2s"]).with("IDEMPOTENCY_URL", url),
            Program::new(&["list", "--timeout", "2s", "--url", url]),
            Program::new(&["doctor", "--timeout", "2s", "--json"]).with("IDEMPOTENCY_URL", url),
        ] {
            let written = program.run();
            assert!(matches!(written.code, 1 | 2), "{written:?}");
            assert!(!format!("{written:?}").contains("hunter2"), "{written:?}");
        }
    }
    let error = Program::new(&["list", "--url", urls[0]]).fails(2);
    assert!(error.contains("IDEMPOTENCY_URL"), "{error}");
}

#[tokio::test]
async fn a_url_is_read_from_a_file() {
    let file = File::new();
    let name = file.path().with_extension("url");
    std::fs::write(&name, format!("{}\n", file.url())).unwrap();
    let name = name.to_str().unwrap();
    Program::new(&["migrate", "--url-file", name]).text();
    Program::new(&["doctor", "--url-file", name]).text();
    let error = Program::new(&["doctor", "--url-file", "/nonexistent"]).fails(1);
    assert!(error.contains("/nonexistent"), "{error}");
}

#[tokio::test]
async fn a_body_is_shown_only_if_it_is_asked_for() {
    let backend = Backend::sqlite().await;
    let id = backend.completed("k").await.to_string();
    for arguments in
        [&["show", &id][..], &["list", "--all"], &["explain", &id], &["show", &id, "--json"]]
    {
        let text = backend.program(arguments).text();
        assert!(!text.contains("confidential"), "{text}");
    }
    assert!(backend.program(&["show", &id, "--body"]).text().contains("confidential"));
}

#[tokio::test]
async fn signed_principals_are_found_by_the_keys() {
    let backend = Backend::sqlite().await;
    let keys = FingerprintKeys::none().with(7, b"0123456789abcdef").unwrap();
    backend.completed_with("signed", &keys).await;
    let erase = ["erase", "--scope", "user:alice", "--reason", "asked", "--yes"];
    backend.program(&erase).fails(3);
    let file = File::new();
    let name = file.path().with_extension("keys");
    std::fs::write(&name, "7:hex:30313233343536373839616263646566\n").unwrap();
    let with_file = ["--fingerprint-keys-file", name.to_str().unwrap()];
    let list = [&["list", "--scope", "user:alice"][..], &with_file].concat();
    assert_eq!(backend.program(&list).json()["records"].as_array().unwrap().len(), 1);
    let erase = backend.program(&erase).with("IDEMPOTENCY_FINGERPRINT_KEYS", "7:0123456789abcdef");
    assert_eq!(erase.json()["erased"], 1);
}
