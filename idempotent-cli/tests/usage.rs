//! Command lines that ask for something that cannot be.

use test_support::subjects::sqlite::File;

use crate::{backend::Backend, program::Program};

#[test]
fn a_wrong_command_line_has_the_exit_code_2() {
    for (arguments, named) in [
        (&["list"][..], "IDEMPOTENCY_URL"),
        (&["lst"], "list"),
        (&["list", "--url", "oracle:x"], "sqlite:"),
        (&["list", "--url", "memory:"], "in the process of the application"),
        (&["list", "--url", "x", "--timeout", "0"], "500ms"),
        (&["release", "abc"], "--reason"),
        (&["release", "abc", "--reason", ""], "--reason"),
        (&["resolve", "abc", "--reason", "x"], "--status"),
        (&["show"], "ID"),
        (&["show", "--key", "k"], "--namespace"),
        (&["show", "--key", "k", "--operation", "o", "--namespace", "n"], "--scope"),
        (&["erase", "--reason", "x"], "--scope"),
        (&["resolve", "abc", "--reason", "x", "--status", "99"], "--status"),
    ] {
        let error = Program::new(arguments).fails(2);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
    assert_eq!(Program::new(&["--help"]).run().code, 0);
    assert_eq!(Program::new(&["--version"]).run().code, 0);
}

#[tokio::test]
async fn what_the_store_does_not_have_is_refused() {
    let backend = Backend::sqlite().await;
    for (arguments, named) in [
        (&["list", "--schema", "s"][..], "--schema"),
        (&["list", "--key-prefix", "p"], "--key-prefix"),
        (&["migrate", "--partitions", "4"], "--partitions"),
        (&["list", "--after", "'"], "position"),
        (&["show", "xyz"], "hexadecimal"),
        (&["show", "abc", "--reference", "x"], "--reference"),
    ] {
        let error = backend.program(arguments).fails(2);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}

#[test]
fn a_misspelled_file_is_not_created() {
    let file = File::new();
    let url = file.url();
    for arguments in [&["list"][..], &["doctor"], &["purge"]] {
        Program::new(arguments).with("IDEMPOTENCY_URL", &url).fails(1);
        assert!(!file.path().exists(), "{arguments:?}");
    }
    Program::new(&["migrate"]).with("IDEMPOTENCY_URL", &url).text();
    Program::new(&["list"]).with("IDEMPOTENCY_URL", &url).text();
}

#[tokio::test]
async fn a_decision_needs_a_name() {
    let backend = Backend::sqlite().await;
    let id = backend.held("k", "re_1").await.to_string();
    let release = ["release", &id, "--reason", "not at the bank", "--yes"];
    let error = backend.program(&release).with("USER", "").fails(2);
    assert!(error.contains("--actor"), "{error}");
    assert_eq!(backend.program(&release).json()["actor"], "ada");
}
