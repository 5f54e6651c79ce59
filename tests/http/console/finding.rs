//! Lists, searches, and what is shown of a record.

use actix_web::test::TestRequest;
use serde_json::json;

use super::{OPERATION, SECRET, Subject};

#[actix_web::test]
async fn a_record_is_found_by_the_digits_of_a_log_line() {
    let subject = Subject::new();
    let id = subject.held("k").await.to_string();
    let found = subject.get("bob", &format!("/find?digits=%20{}", &id[..8])).await;
    let location = found.header("location").to_owned();
    assert_eq!((found.status.as_u16(), location), (303, format!("./records/{id}")));
    let prefix = subject.get("bob", &format!("/records/{}", &id[..8])).await;
    assert_eq!(prefix.header("location"), format!("../records/{id}"));
    let page = subject.get("bob", &format!("/records/{id}")).await;
    assert!(page.body.contains(&id) && page.body.contains("re_k"), "{}", page.body);
    assert!(page.body.contains("The key is held: it is not known"), "{}", page.body);
    for (digits, status) in [("00000000", 404), ("xyz", 400), ("", 400)] {
        let missing = subject.get("bob", &format!("/find?digits={digits}")).await;
        assert_eq!(missing.status.as_u16(), status, "{digits}: {}", missing.body);
    }
}

#[actix_web::test]
async fn several_records_that_may_be_meant_are_listed() {
    let subject = Subject::new();
    // More records than there are first digits.
    for number in 0..17 {
        subject.held(&format!("k{number}")).await;
    }
    let ambiguous = async |path: &str| {
        for digit in "0123456789abcdef".chars() {
            let found = subject.get("bob", &format!("{path}{digit}")).await;
            if found.status.as_u16() == 409 {
                return found;
            }
        }
        panic!("no digit is ambiguous")
    };
    let problem = ambiguous("/api/records/").await.json();
    assert_eq!(problem["code"], "ambiguous");
    assert!(problem["candidates"].as_array().unwrap().len() > 1, "{problem}");
    let page = ambiguous("/find?digits=").await;
    assert!(page.body.matches("href=\"./records/").count() > 1, "{}", page.body);
}

#[actix_web::test]
async fn a_record_is_found_by_the_key_that_the_client_sent() {
    let subject = Subject::new();
    let id = subject.held("order 7").await;
    let fields = [("key", "order 7"), ("operation", OPERATION), ("scope", "user:alice")];
    let found = subject.post("bob", "/find", &fields).await;
    assert_eq!(found.header("location"), format!("./records/{id}"), "{}", found.body);
    let given = json!({ "key": "order 7", "operation": OPERATION, "scope": "user:alice" });
    let found = subject.call("bob", "/find", &given).await;
    assert_eq!(found.json()["id"], id.to_string());
    let other = json!({
        "key": "order 7", "operation": OPERATION, "scope": "user:alice", "namespace": "other",
    });
    assert_ne!(subject.call("bob", "/find", &other).await.json()["id"], id.to_string());
    let wrong = subject.post("bob", "/find", &[("key", ""), fields[1], fields[2]]).await;
    assert_eq!(wrong.status.as_u16(), 400);
}

#[actix_web::test]
async fn a_list_has_what_its_filters_say() {
    let subject = Subject::new();
    let (held, done) = (subject.held("a").await, subject.completed("b").await);
    let ids = async |query: &str| {
        let page = subject.get("bob", &format!("/api/records{query}")).await.json();
        let records = page["records"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
        records.map(|record| record["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (held, done) = ([held.to_string()], [done.to_string()]);
    assert_eq!(ids("").await, held);
    assert_eq!(ids("?state=held&operation=POST%20/v1/refunds").await, held);
    assert_eq!(ids("?state=held&operation=other").await, [""; 0]);
    assert_eq!(ids("?reference=re_a&older_than=").await, held);
    assert_eq!(ids("?older_than=10m").await, [""; 0]);
    assert_eq!(ids("?state=completed").await, done);
    assert_eq!(ids("?state=any").await.len(), 2);
    for wrong in ["?state=lost", "?older_than=soon", "?after=..", "?colour=red"] {
        let refused = subject.get("bob", &format!("/api/records{wrong}")).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json()["code"].clone()),
            (400, "invalid".into())
        );
        let page = subject.get("bob", &format!("/records{wrong}")).await;
        assert_eq!(page.status.as_u16(), 400);
        assert!(page.body.contains("<h1>That cannot be</h1>"), "{}", page.body);
    }
}

#[actix_web::test]
async fn a_long_list_has_pages() {
    let subject = Subject::new();
    for number in 0..120 {
        subject.held(&format!("k{number}")).await;
    }
    let (mut path, mut found) = ("/admin/keys/records?state=held".to_owned(), 0);
    loop {
        let request = TestRequest::get().uri(&path).insert_header(("x-user", "bob"));
        let page = subject.send(request).await;
        found += page.body.matches("<tr><td>").count();
        let Some(next) = page.body.split("rel=\"next\" href=\"").nth(1) else { break };
        let next = next.split('"').next().unwrap().replace("&amp;", "&");
        path = format!("/admin/keys/{}", next.strip_prefix("./").unwrap());
    }
    assert_eq!(found, 120);
}

#[actix_web::test]
async fn a_recorded_body_is_shown_only_if_the_application_allows_it() {
    let mut subject = Subject::new();
    let id = subject.completed("k").await;
    for path in [format!("/records/{id}"), format!("/api/records/{id}")] {
        let hidden = subject.get("ada", &path).await;
        assert!(hidden.body.contains("/v1/refunds/7"), "{}", hidden.body);
        assert!(!hidden.body.contains(SECRET), "{}", hidden.body);
    }
    assert!(subject.get("ada", "/records?state=any").await.body.contains(OPERATION));
    subject.console = subject.console.clone().show_bodies();
    for path in [format!("/records/{id}"), format!("/api/records/{id}")] {
        assert!(subject.get("bob", &path).await.body.contains(SECRET));
    }
}

#[actix_web::test]
async fn what_others_have_written_is_text() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let hostile = "<script>alert(1)</script>\"'&";
    let form = [("seen", &*subject.seen(&id).await), ("reason", hostile)];
    let released = subject.post("ada", &format!("/records/{id}/release"), &form).await;
    assert_eq!(released.status.as_u16(), 303);
    for path in [format!("/records/{id}"), "/log".into()] {
        let page = subject.get("ada", &path).await;
        assert!(!page.body.contains("<script") && page.body.contains("&lt;script&gt;"), "{path}");
    }
    let filter = subject.get("ada", "/records?reference=%22%3E%3Cscript%3E").await;
    assert!(!filter.body.contains("<script"), "{}", filter.body);
}
