//! One decision about many held operations.

use idempotent_actix::store::{ListedState, RecordFilter, RecordState, Store};
use serde_json::json;

use super::Subject;

/// How many operations are held.
async fn held(subject: &Subject) -> usize {
    let filter = RecordFilter::of_state(ListedState::Held);
    let administrator = subject.idempotency.administrator();
    administrator.watched(&filter, None, 10_000).await.unwrap().records.len()
}

/// The value of a hidden field of a page.
fn field<'a>(page: &'a str, name: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).expect(name);
    rest.split('"').next().unwrap()
}

#[actix_web::test]
async fn all_operations_that_were_shown_are_released_and_no_other() {
    let subject = Subject::new();
    for number in 0..35 {
        subject.held(&format!("k{number}")).await;
    }
    let page = subject.get("ada", "/bulk?state=held").await;
    assert!(page.body.contains("35 held operations are like that"), "{}", page.body);
    let page = subject.post("ada", "/bulk/confirm", &[("action", "release")]).await;
    assert!(page.body.contains("Release 35 keys"), "{}", page.body);
    let seen = field(&page.body, "seen").to_owned();
    // One is held later, and another one is released by somebody else.
    let later = subject.held("later").await;
    let gone = subject.id("k3");
    let form = [("seen", &*subject.seen(&gone).await), ("reason", "mine")];
    subject.post("ada", &format!("/records/{gone}/release"), &form).await;
    let form = [
        ("action", "release"),
        ("seen", seen.as_str()),
        ("reason", "the bank was down from 3 to 4"),
        ("confirmed", "yes"),
    ];
    let done = subject.post("ada", "/bulk/run", &form).await;
    assert!(done.body.contains("34 of 35 operations were decided"), "{}", done.body);
    assert!(done.body.contains("1 had changed since they were shown"), "{}", done.body);
    assert!(done.body.matches("<progress").count() >= 3, "no progress: {}", done.body);
    assert!(done.body.trim_end().ends_with("</html>"));
    assert_eq!(subject.state(&later).await, Some(RecordState::Held));
    assert_eq!(held(&subject).await, 1);
    let log = subject.get("bob", "/log").await;
    assert!(log.body.matches("the bank was down from 3 to 4").count() >= 34);
}

#[actix_web::test]
async fn a_program_completes_all_that_it_has_seen() {
    let subject = Subject::new();
    for number in 0..12 {
        subject.held(&format!("k{number}")).await;
    }
    let selected = subject.get("bob", "/api/bulk?operation=POST%20/v1/refunds").await.json();
    assert_eq!((&selected["count"], &selected["is_cut"]), (&json!(12), &json!(false)));
    let given = json!({
        "filter": { "operation": "POST /v1/refunds" },
        "seen": selected["seen"],
        "reason": "all are in the books",
        "action": "complete",
        "response": { "status": 200, "body": "ok" },
    });
    let refused = subject.call("bob", "/bulk", &given).await;
    assert_eq!(refused.status.as_u16(), 403);
    let done = subject.call("ada", "/bulk", &given).await.json();
    assert_eq!(done, json!({ "selected": 12, "decided": 12, "changed": 0, "failed": 0 }));
    // Once more, as if the response had been lost.
    let again = subject.call("ada", "/bulk", &given).await.json();
    assert_eq!(again, json!({ "selected": 12, "decided": 0, "changed": 12, "failed": 0 }));
    assert!(matches!(subject.state(&subject.id("k0")).await, Some(RecordState::Completed(_))));
}

#[actix_web::test]
async fn one_decision_is_about_a_thousand_operations_at_most() {
    let subject = Subject::new();
    for number in 0..1_003 {
        subject.held(&format!("k{number}")).await;
    }
    let page = subject.get("ada", "/bulk").await;
    assert!(page.body.contains("More than 1000 held operations are like that"), "{}", page.body);
    let page = subject.post("ada", "/bulk/confirm", &[("action", "release")]).await;
    let seen = field(&page.body, "seen").to_owned();
    assert_eq!(seen.split(' ').count(), 1_000);
    let form = |seen: &str| {
        let fields = [("action", "release"), ("reason", "because"), ("confirmed", "yes")];
        let mut form: Vec<_> =
            fields.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        form.push(("seen".to_owned(), seen.to_owned()));
        form
    };
    let send = async |form: &[(String, String)]| {
        let form: Vec<_> =
            form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        subject.post("ada", "/bulk/run", &form).await
    };
    let too_many = format!("{seen} 0123456789abcdef");
    assert_eq!(send(&form(&too_many)).await.status.as_u16(), 400);
    assert_eq!(send(&form("")).await.status.as_u16(), 400);
    assert_eq!(send(&form("x")).await.status.as_u16(), 400);
    assert_eq!(held(&subject).await, 1_003);
    let done = send(&form(&seen)).await;
    assert!(done.body.contains("1000 of 1000 operations were decided"), "{}", done.body);
    assert_eq!(held(&subject).await, 3);
}

#[actix_web::test]
async fn a_decision_about_many_needs_a_confirmation_and_a_reason() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let seen = subject.seen(&id).await;
    let all = [("seen", seen.as_str()), ("reason", "because"), ("confirmed", "yes")];
    for missing in ["seen", "reason", "confirmed", "action"] {
        let form: Vec<_> = all
            .into_iter()
            .chain([("action", "release")])
            .filter(|(name, _)| *name != missing)
            .collect();
        let refused = subject.post("ada", "/bulk/run", &form).await;
        assert_eq!(refused.status.as_u16(), 400, "{missing}: {}", refused.body);
    }
    for path in ["/bulk/confirm", "/bulk/run"] {
        let form = [all[0], all[1], all[2], ("action", "release")];
        assert_eq!(subject.post("bob", path, &form).await.status.as_u16(), 403);
    }
    assert_eq!(subject.get("bob", "/bulk").await.status.as_u16(), 403);
    assert_eq!(subject.store.look_up(&id).await.unwrap().unwrap().record.state, RecordState::Held);
}
