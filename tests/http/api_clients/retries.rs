//! When a request is sent again, and with which key.

use std::{collections::HashSet, time::Duration};

use idempotent_client::{ErrorKind, IdempotentRequest, Key};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest_middleware::ClientBuilder;

use super::{
    client, http, idempotency, received,
    scripted::{
        Line::{Close, Ignore},
        Scripted, respond, truncated,
    },
    wait,
};

#[test]
fn every_attempt_of_an_operation_has_its_key_and_each_operation_another_one() {
    let again = || [respond(503, &[], ""), Close, truncated(), respond(201, &[], "done")];
    let server = Scripted::new(again().into_iter().chain(again()));
    let client = client(&idempotency());
    for _ in 0..2 {
        let sent = client.post(server.url()).idempotent().json(&"order").send();
        assert_eq!(wait(async { received(sent.await).await }), (201, "done".into()));
    }
    let (requests, keys) = (server.requests(), server.keys());
    assert_eq!(keys.len(), 8);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 2, "{keys:?}");
    for operation in [&requests[..4], &requests[4..]] {
        assert!(operation.iter().all(|request| *request == operation[0]), "{operation:#?}");
        assert!(operation[0].starts_with("POST /orders?a=b HTTP/1.1\r\n"));
        assert!(operation[0].ends_with("\r\n\r\n\"order\""));
    }
    for key in keys {
        let uuid: uuid::Uuid = key.parse().unwrap();
        assert_eq!(uuid.get_version_num(), 4, "{key}");
    }
}

#[test]
fn a_request_that_is_not_marked_passes_unchanged() {
    let server = Scripted::new([respond(503, &[], "busy")]);
    let sent = client(&idempotency()).post(server.url()).body("order").send();
    assert_eq!(wait(sent).unwrap().status().as_u16(), 503);
    assert_eq!(server.keys(), [""]);
}

#[test]
fn a_request_that_has_a_key_is_guarded() {
    let server = Scripted::new([respond(503, &[], ""), respond(201, &[], "")]);
    let request = client(&idempotency()).post(server.url()).header("Idempotency-Key", "k-1");
    assert_eq!(wait(request.send()).unwrap().status().as_u16(), 201);
    assert_eq!(server.keys(), ["k-1", "k-1"]);
}

#[test]
fn the_key_and_the_extensions_of_the_request_are_kept() {
    #[derive(Clone)]
    struct Tenant(&'static str);

    /// Another middleware, which reads an extension.
    struct Tenants;

    #[async_trait::async_trait]
    impl reqwest_middleware::Middleware for Tenants {
        async fn handle(
            &self,
            mut request: reqwest::Request,
            extensions: &mut http_1::Extensions,
            next: reqwest_middleware::Next<'_>,
        ) -> reqwest_middleware::Result<reqwest::Response> {
            let Tenant(name) = *extensions.get().expect("an extension");
            request.headers_mut().insert("x-tenant", HeaderValue::from_static(name));
            next.run(request, extensions).await
        }
    }

    let server = Scripted::new([respond(503, &[], ""), respond(201, &[], "")]);
    let client = ClientBuilder::new(http()).with(idempotency().middleware()).with(Tenants).build();
    let request = client.post(server.url()).with_extension(Tenant("t-7"));
    let request = request.header("Idempotency-Key", "k-1").idempotent();
    assert_eq!(wait(request.send()).unwrap().status().as_u16(), 201);
    assert_eq!(server.keys(), ["k-1", "k-1"]);
    assert_eq!(server.header("x-tenant"), ["t-7", "t-7"]);
}

#[test]
fn final_responses_are_returned_at_once() {
    for status in [200, 400, 402, 404, 409, 422] {
        let server = Scripted::new([respond(status, &[("x", "y")], "the body")]);
        let sent = client(&idempotency()).post(server.url()).idempotent().send();
        let response = wait(sent).unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x"]),
            (status, &"y".parse().unwrap())
        );
        assert_eq!(response.url(), &server.url());
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[test]
fn a_status_that_http_does_not_have_is_not_the_outcome() {
    let server =
        Scripted::new([respond(600, &[], ""), respond(999, &[], ""), respond(201, &[], "")]);
    let sent = client(&idempotency()).post(server.url()).idempotent().send();
    assert_eq!(wait(sent).unwrap().status().as_u16(), 201);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_url_with_a_fragment_gets_its_response() {
    for first in [vec![], vec![Close]] {
        let script = first.into_iter().chain([respond(201, &[], "done")]);
        let server = Scripted::new(script);
        let mut url = server.url();
        url.set_fragment(Some("top"));
        let sent = client(&idempotency()).post(url).idempotent().send();
        assert_eq!(wait(async { received(sent.await).await }), (201, "done".into()));
    }
}

#[test]
fn stripes_errors_and_headers_are_understood() {
    let in_use = r#"{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}"#;
    let server = Scripted::new([
        respond(409, &[], in_use),
        respond(429, &[("stripe-should-retry", "true")], ""),
        respond(500, &[("idempotent-replayed", "true")], "recorded"),
    ]);
    let sent = client(&idempotency()).post(server.url()).idempotent().form(&[("a", "b")]).send();
    assert_eq!(wait(async { received(sent.await).await }), (500, "recorded".into()));
    assert_eq!(server.requests().len(), 3);
    assert!(server.requests().iter().all(|request| request.ends_with("\r\n\r\na=b")));
}

#[test]
fn an_attempt_without_a_response_in_time_is_repeated() {
    let server = Scripted::new([Ignore, respond(201, &[], "done")]);
    let client = client(&idempotency().attempt_timeout(Duration::from_millis(300)));
    let sent = client.post(server.url()).idempotent().send();
    assert_eq!(wait(async { received(sent.await).await }), (201, "done".into()));
    assert_eq!(server.keys().iter().collect::<HashSet<_>>().len(), 1);
}

#[test]
fn a_response_beyond_the_limit_is_streamed() {
    let body = "0123456789".repeat(20_000);
    for limit in [0, 100_000, 1_000_000] {
        let server = Scripted::new([respond(200, &[], &body)]);
        let client = client(&idempotency().max_response(limit));
        let sent = client.post(server.url()).idempotent().send();
        assert_eq!(wait(async { received(sent.await).await }), (200, body.clone()), "{limit}");
    }
}

#[test]
fn the_server_says_when_to_come_back() {
    let server = Scripted::new([respond(409, &[("retry-after", "1")], ""), respond(201, &[], "")]);
    let client = client(&idempotency());
    // With a deadline before that, the client gives up without waiting.
    let sent = client.post(server.url()).idempotent().deadline(Duration::from_millis(900)).send();
    let error = wait(sent).unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (ErrorKind::Deadline, 1));
    assert_eq!(error.last_status().unwrap().as_u16(), 409);

    let server = Scripted::new([respond(409, &[("retry-after", "1")], ""), respond(201, &[], "")]);
    let started = std::time::Instant::now();
    let sent = client.post(server.url()).idempotent().send();
    assert_eq!(wait(sent).unwrap().status().as_u16(), 201);
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn the_header_and_the_key_can_be_chosen() {
    let server = Scripted::new([respond(201, &[], "")]);
    let idempotency = idempotency().header(HeaderName::from_static("paypal-request-id"));
    let key: Key = "order-17".parse().unwrap();
    let request = client(&idempotency)
        .put(server.url())
        .header("x-one", "1")
        .idempotent()
        .header("x-two", "2")
        .headers(
            [(HeaderName::from_static("x-three"), HeaderValue::from_static("3"))]
                .into_iter()
                .collect(),
        )
        .query(&[("c", "d")])
        .key(key);
    assert_eq!(wait(request.send()).unwrap().status().as_u16(), 201);
    assert_eq!(
        (server.header("paypal-request-id"), server.keys()),
        (vec!["order-17".into()], vec![String::new()])
    );
    assert!(server.requests()[0].starts_with("PUT /orders?a=b&c=d HTTP/1.1\r\n"));
    for (name, value) in [("x-one", "1"), ("x-two", "2"), ("x-three", "3")] {
        assert_eq!(server.header(name), [value]);
    }
}

#[test]
fn a_key_in_the_chosen_header_is_kept() {
    let server = Scripted::new([respond(503, &[], ""), respond(201, &[], "")]);
    let idempotency = idempotency().header(HeaderName::from_static("paypal-request-id"));
    let request = client(&idempotency).post(server.url()).header("PayPal-Request-Id", "order-17");
    let response = wait(request.idempotent().send()).unwrap();
    assert_eq!(response.extensions().get::<Key>().map(Key::as_str), Some("order-17"));
    assert_eq!(server.header("paypal-request-id"), ["order-17", "order-17"]);
    assert_eq!(server.keys(), ["", ""]);
}

#[test]
fn without_the_middleware_the_request_is_sent_once_with_its_key() {
    let server = Scripted::new([respond(503, &[], "")]);
    let bare = reqwest_middleware::ClientWithMiddleware::from(http());
    let error = wait(bare.post(server.url()).idempotent().send()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotInstalled);
    assert_eq!(
        error.to_string(),
        "the client has no middleware for idempotency; build it with `ClientIdempotency::client`; \
         it may have been done"
    );
    assert_eq!(server.keys(), [error.key().unwrap().as_str()]);
}
