//! Decisions about one record.

use actix_web::test::TestRequest;
use idempotent_actix::{
    recording::Recording,
    store::{RecordState, Store},
};
use idempotent_core::{Abandoned, EncodedRecording};
use serde_json::json;

use super::Subject;

#[actix_web::test]
async fn a_held_operation_is_completed_with_the_response_that_was_shown() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let body = "{\r\n  \"refund\": \"re_k\"\r\n}";
    let outcome = [
        ("kind", "response"),
        ("status", "201"),
        ("content_type", "application/json"),
        ("headers", "Location: /v1/refunds/7\r\n\r\nx-note: a"),
        ("body", body),
    ];
    let seen = subject.seen(&id).await;
    let mut form = vec![("seen", seen.as_str())];
    form.extend(outcome);
    let preview = subject.post("ada", &format!("/records/{id}/preview"), &form).await;
    assert!(preview.status.is_success(), "{}", preview.body);
    for part in ["Clients will get", "201", "/v1/refunds/7", "&quot;refund&quot;: &quot;re_k&quot;"]
    {
        assert!(preview.body.contains(part), "{part}: {}", preview.body);
    }
    assert_eq!(subject.state(&id).await, Some(RecordState::Held));
    form.push(("reason", "the bank has re_k"));
    let done = subject.post("ada", &format!("/records/{id}/complete"), &form).await;
    let location = format!("../../records/{id}?done=completed");
    assert_eq!((done.status.as_u16(), done.header("location")), (303, location.as_str()));
    let Some(RecordState::Completed(recording)) = subject.state(&id).await else { panic!() };
    let recording = EncodedRecording::verify(recording).unwrap();
    let recording = Recording::decode(&recording).unwrap();
    assert_eq!(recording.status, 201);
    let idempotent_actix::recording::RecordedBody::Whole(body) = recording.body else { panic!() };
    assert_eq!(body, "{\n  \"refund\": \"re_k\"\n}");
    let names: Vec<_> = recording.headers.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["content-type", "location", "x-note"]);
    let page = subject.get("bob", &format!("/records/{id}?done=completed")).await;
    assert!(page.body.contains("Completed: requests with the key get this response"));
    assert!(page.body.contains("the bank has re_k") && page.body.contains("ada"), "{}", page.body);
    let log = subject.get("bob", "/api/log").await.json();
    let entry = &log["entries"][0];
    let logged = ["action", "actor", "reason", "before", "after"].map(|name| entry[name].clone());
    assert_eq!(logged, ["complete", "ada", "the bank has re_k", "held", "completed 201"]);
}

#[actix_web::test]
async fn a_job_is_completed_with_its_result_and_a_program_decides_too() {
    let subject = Subject::new();
    let (job, response) = (subject.held("job").await, subject.held("response").await);
    let given = json!({
        "seen": subject.seen(&job).await, "reason": "the import is done", "result": { "rows": 7 },
    });
    let done = subject.call("ada", &format!("/records/{job}/resolve"), &given).await;
    assert!(done.status.is_success(), "{}", done.body);
    let Some(RecordState::Completed(recording)) = subject.state(&job).await else { panic!() };
    let expected = idempotent_core::job::recording_of::<_, ()>(Ok(&json!({ "rows": 7 }))).unwrap();
    assert_eq!(recording, *expected.as_bytes());
    let given = json!({
        "seen": subject.seen(&response).await,
        "reason": "ok",
        "response": { "status": 204 },
    });
    // The digits of a log line are enough.
    let digits = &response.to_string()[..12];
    let done = subject.call("ada", &format!("/records/{digits}/resolve"), &given).await;
    assert!(done.status.is_success(), "{}", done.body);
    let form = [("seen", &*subject.seen(&job).await), ("reason", "import it again")];
    let done = subject.post("ada", &format!("/records/{job}/forget"), &form).await;
    assert_eq!(done.status.as_u16(), 303, "{}", done.body);
    assert_eq!(subject.state(&job).await, None);
    let page = subject.get("bob", &format!("/records/{job}?done=forgotten")).await;
    assert!(page.body.contains("import it again"), "the story outlives the record: {}", page.body);
}

#[actix_web::test]
async fn a_page_that_is_out_of_date_changes_nothing() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let seen = subject.seen(&id).await;
    let form = [("seen", seen.as_str()), ("reason", "because"), ("status", "200")];
    let release = format!("/records/{id}/release");
    assert_eq!(subject.post("ada", &release, &form).await.status.as_u16(), 303);
    // Another attempt is held by now.
    let lease = subject.claimed("k").await;
    subject.store.abandon(&lease, Abandoned::Hold).await.unwrap();
    for action in ["release", "complete", "forget"] {
        let path = format!("/records/{id}/{action}");
        let refused = subject.post("ada", &path, &form).await;
        assert_eq!(refused.status.as_u16(), 409, "{action}: {}", refused.body);
        assert!(refused.body.contains("Nothing was changed"), "{}", refused.body);
        assert!(refused.body.contains("is not the one that was shown"), "{}", refused.body);
    }
    assert_eq!(subject.state(&id).await, Some(RecordState::Held));
    // One that is in flight or completed is not resolved, and one that is held is not forgotten.
    let flies = subject.claimed("flies").await.id;
    let done = subject.completed("done").await;
    for (id, action) in [
        (flies, "release"),
        (flies, "complete"),
        (flies, "forget"),
        (done, "release"),
        (id, "forget"),
    ] {
        let form = [("seen", &*subject.seen(&id).await), form[1], form[2]];
        let refused = subject.post("ada", &format!("/records/{id}/{action}"), &form).await;
        assert_eq!(refused.status.as_u16(), 409, "{action}: {}", refused.body);
    }
}

#[actix_web::test]
async fn a_decision_needs_a_reason_and_a_response_that_can_be_recorded() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let seen = subject.seen(&id).await;
    let long = "x".repeat(256);
    for reason in ["", " \t", &long] {
        let form = [("seen", seen.as_str()), ("reason", reason), ("status", "200")];
        for action in ["release", "complete"] {
            let refused = subject.post("ada", &format!("/records/{id}/{action}"), &form).await;
            assert_eq!(refused.status.as_u16(), 400, "{action} {reason}");
        }
    }
    for (field, wrong) in [
        ("status", "99"),
        ("status", "x"),
        ("status", ""),
        ("headers", "Set-Cookie: a=b"),
        ("headers", "no header"),
        ("content_type", "a\u{1}"),
    ] {
        let mut form = vec![("seen", seen.as_str()), ("reason", "because"), (field, wrong)];
        if field != "status" {
            form.push(("status", "200"));
        }
        for action in ["preview", "complete"] {
            let refused = subject.post("ada", &format!("/records/{id}/{action}"), &form).await;
            assert_eq!(refused.status.as_u16(), 400, "{action} {field}={wrong}: {}", refused.body);
        }
    }
    for wrong in [
        json!({ "seen": seen, "reason": "because" }),
        json!({ "seen": seen, "reason": "because", "result": 1, "response": { "status": 200 } }),
        json!({ "seen": "x", "reason": "because", "result": 1 }),
        json!({ "seen": seen, "reason": "because", "result": 1, "more": 1 }),
        json!([]),
    ] {
        let refused = subject.call("ada", &format!("/records/{id}/resolve"), &wrong).await;
        let code = refused.json()["code"].clone();
        assert_eq!((refused.status.as_u16(), code), (400, "invalid".into()), "{wrong}");
    }
    assert_eq!(subject.state(&id).await, Some(RecordState::Held));
}

#[actix_web::test]
async fn a_form_of_another_site_changes_nothing() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let form = [("seen", subject.seen(&id).await), ("reason", "because".into())];
    let path = format!("/admin/keys/records/{id}/release");
    let origins: [&[(&str, &str)]; 6] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "https://attacker.example")],
        &[("origin", "null")],
        &[],
    ];
    for headers in origins {
        let request =
            TestRequest::post().uri(&path).set_form(&form).insert_header(("x-user", "ada"));
        let request = headers.iter().copied().fold(request, TestRequest::insert_header);
        let refused = subject.send(request).await;
        assert_eq!(refused.status.as_u16(), 403, "{headers:?}");
    }
    // Nor does one that is sent by GET.
    let query = format!("{path}?seen={}&reason=because", form[0].1);
    let request = TestRequest::get().uri(&query).insert_header(("x-user", "ada"));
    assert!(subject.send(request).await.status.is_client_error());
    assert_eq!(subject.state(&id).await, Some(RecordState::Held));
}

#[actix_web::test]
async fn only_a_link_of_the_same_server_fills_in_a_response() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let path = format!("/admin/keys/records/{id}?status=201&body=filled-in");
    for (site, is_filled_in) in [("same-origin", true), ("cross-site", false), ("none", false)] {
        let request = TestRequest::get().uri(&path).insert_header(("x-user", "ada"));
        let page = subject.send(request.insert_header(("sec-fetch-site", site))).await;
        assert_eq!(page.body.contains("filled-in"), is_filled_in, "{site}");
    }
}
