//! What the program writes to terminals, pipes and scripts.

use crate::{backend::Backend, program::Program};

const ESCAPE: char = '\u{1b}';

#[tokio::test]
async fn colours_are_only_for_terminals_and_never_if_they_are_not_wanted() {
    let backend = Backend::sqlite().await;
    backend.held("k", "re_1").await;
    let list = || backend.program(&["list"]);
    assert!(!list().text().contains(ESCAPE));
    let in_terminal = list().in_a_terminal().text();
    assert!(in_terminal.contains("\u{1b}[1m\u{1b}[31mheld"), "{in_terminal:?}");
    assert!(!list().with("NO_COLOR", "1").in_a_terminal().text().contains(ESCAPE));
    assert!(!backend.program(&["list", "--json"]).in_a_terminal().text().contains(ESCAPE));
    // Progress is for terminals too.
    assert_eq!(backend.program(&["list", "--all"]).run().error, "");
    let error = backend.program(&["show", "00000000"]).fails(3);
    assert!(error.starts_with("error: ") && !error.contains(ESCAPE), "{error:?}");
}

#[tokio::test]
async fn a_decision_is_asked_about_in_a_terminal() {
    let backend = Backend::sqlite().await;
    let id = backend.held("k", "re_1").await.to_string();
    let resolve = |answer: &str| {
        let arguments = ["resolve", &id, "--status", "201", "--body", "refunded"];
        let arguments = [&arguments[..], &["--reason", "seen at the bank"]].concat();
        backend.program(&arguments).in_a_terminal().with_input(answer).run()
    };
    let refused = resolve("n\n");
    assert_eq!(refused.code, 1, "{refused:?}");
    for shown in ["re_1", &id, "Clients will get:", "201", "refunded", "nothing was changed"] {
        assert!(refused.out.contains(shown), "{shown}: {refused:?}");
    }
    assert_eq!(backend.program(&["show", &id]).json()["state"], "held");
    assert_eq!(resolve("y\n").code, 0);
    assert_eq!(backend.program(&["show", &id]).json()["state"], "completed");
}

#[tokio::test]
async fn an_error_is_json_too() {
    let backend = Backend::sqlite().await;
    let error = backend.program(&["show", "00000000", "--json"]).fails(3);
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!((&error["exit_code"], &error["candidates"]), (&3.into(), &serde_json::json!([])));
    assert!(error["error"].as_str().unwrap().contains("00000000"));
}

#[tokio::test]
async fn pages_follow_each_other() {
    let backend = Backend::sqlite().await;
    for number in 0..5 {
        backend.held(&number.to_string(), "re").await;
    }
    let (mut ids, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut list = vec!["list", "--limit", "2"];
        list.extend(after.iter().flat_map(|after| ["--after", after]));
        let page = backend.program(&list).json();
        let records = page["records"].as_array().unwrap().iter();
        ids.extend(records.map(|record| record["id"].as_str().unwrap().to_owned()));
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    let text = backend.program(&["list", "--limit", "2"]).text();
    assert!(text.contains("--after "), "{text}");
}

#[test]
fn completions_and_man_pages_need_no_store() {
    let bash = Program::new(&["completions", "bash"]).text();
    assert!(bash.contains("_idempotency") && bash.contains("--fingerprint-keys-file"));
    let page = Program::new(&["man"]).text();
    assert!(page.contains(".TH idempotency 1") && page.contains("Exit codes"), "{page}");
    let folder = test_support::subjects::sqlite::File::new();
    let folder = folder.path().with_extension("man");
    Program::new(&["man", folder.to_str().unwrap()]).text();
    for command in ["", "-resolve", "-erase", "-doctor"] {
        let page = std::fs::read_to_string(folder.join(format!("idempotency{command}.1"))).unwrap();
        assert!(page.contains(&format!(".TH idempotency{command} 1")), "{page}");
        assert!(page.contains("url\\-file"), "{page}");
    }
}
