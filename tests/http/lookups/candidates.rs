//! Handlers of which several may be meant by the name in a lookup.

use actix_web::patch;

use super::*;

/// Each pair has a resource of one name. Which of the two handlers is found first is not known.
macro_rules! pair {
    ($module:ident $path:literal $($scope:literal)*) => {
        mod $module {
            pair!(@handlers $module $path [guests partners] $($scope)*);
        }
    };
    (@handlers $module:ident $path:literal [$one:ident $other:ident] $first:literal $second:literal)
    => {
        pair!(@handler $one $path $first);
        pair!(@handler $other $path $second);
    };
    (@handler $module:ident $path:literal $scope:literal) => {
        pub(super) mod $module {
            use super::super::*;

            #[idempotent(scope = $scope)]
            #[post($path)]
            pub(in super::super) async fn book(
                user: Option<User>,
                operation: Operation,
                probe: Data<Probe>,
            ) -> actix_web::Result<HttpResponse> {
                drop(user);
                operation.set_reference("secret").await?;
                Ok(probe.run().await)
            }
        }
    };
}

/// The principal of the partners, which middleware has verified.
fn verified(request: &HttpRequest) -> Option<ScopeId> {
    Some(ScopeId::of("user", request.headers().get("x-user")?.to_str().ok()?))
}

pair! { berths "/berths" "claimed" "verified" }
pair! { moorings "/moorings" "verified" "claimed" }

/// Whichever of two handlers is found first: a lookup shows nothing that one of them would not.
#[test]
fn a_lookup_that_may_mean_two_handlers_shows_nothing_if_they_see_different_principals() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(
            web::scope("/v1")
                .service(web::scope("/a").service(berths::guests::book))
                .service(web::scope("/b").service(berths::partners::book))
                .service(web::scope("/c").service(moorings::guests::book))
                .service(web::scope("/d").service(moorings::partners::book)),
        );
    });
    for path in ["/v1/b/berths", "/v1/c/moorings"] {
        let request = Request::post(path).user("acme").header("X-Claimed", "acme").key("k");
        assert_eq!(server.send(&request).status, 201, "{path}");
        let lookup = Request::new("GET", &format!("/keys/k?operation=POST%20{path}"));
        for [claimed, user] in [["acme", "mallory"], ["mallory", "acme"]] {
            let attack = server.send(&lookup.clone().user(user).header("X-Claimed", claimed));
            unknown(&attack);
        }
    }
}

#[idempotent(scope = "claimed")]
#[patch("/depots")]
async fn depot_of_guests(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "_user", method = "PATCH")]
async fn depot_of_partners(_user: User, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

/// The application does not have the handler with this path.
#[test]
fn a_handler_that_is_routed_by_hand_is_not_looked_up_with_the_scope_of_another() {
    let app = TestApp::new();
    let _another = app.serve(|config| {
        config.service(depot_of_guests);
    });
    let server = app.serve(|config| {
        config
            .service(Idempotency::lookup_resource("/keys/{key}"))
            .route("/v1/depots", web::patch().to(depot_of_partners));
    });
    let request = Request::new("PATCH", "/v1/depots").user("acme").key("k");
    assert_eq!(server.send(&request).status, 201);
    let lookup = Request::new("GET", "/keys/k?operation=PATCH%20/v1/depots");
    let attack = server.send(&lookup.header("X-Claimed", "acme"));
    assert_ne!(attack.status, 200, "{}", attack.text());
}

#[idempotent(scope = "scope::bearer_token")]
#[post("/lots/{id:[0-9]+}")]
async fn lot(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[idempotent(scope = "scope::bearer_token", name = "POST /sites/{id}")]
#[post("/plots/{id}")]
async fn plot(probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn the_names_and_the_patterns_of_dynamic_segments_are_found() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(lot).service(plot);
    });
    let send = |method: &str, target: &str| {
        server.send(&Request::new(method, target).header("Authorization", "Bearer t").key("k"))
    };
    for path in ["/lots/7", "/plots/7"] {
        assert_eq!(send("POST", path).status, 201);
    }
    // Handlers of other tests that may be meant would refuse the request.
    for operation in ["/lots/%7Bid%3A%5B0-9%5D%2B%7D", "/sites/%7Bid%7D", "/sites/%7Bother%7D"] {
        let found = send("GET", &format!("/keys/k?operation=POST%20{operation}"));
        assert_eq!(found.status, 200, "{operation}: {}", found.text());
    }
}

/// An extractor that needs what only the handler's requests have.
struct NeedsPost;

impl FromRequest for NeedsPost {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        assert!(request.method() != "GET", "a lookup");
        ready(Ok(Self))
    }
}

#[idempotent(scope = "_user", name = "needs-post")]
#[post("/needs-post")]
async fn needs_post(_user: User, _needs_post: NeedsPost, probe: Data<Probe>) -> HttpResponse {
    probe.run().await
}

#[test]
fn an_extractor_that_panics_in_a_lookup_does_not_log_the_key() {
    let app = TestApp::new();
    let server = app.serve(|config| {
        config.service(Idempotency::lookup_resource("/keys/{key}")).service(needs_post);
    });
    let key = "secret-key-of-alice";
    assert_eq!(server.send(&Request::post("/needs-post").user("alice").key(key)).status, 201);
    unknown(&look_up(&server, &format!("/keys/{key}?operation=needs-post"), "alice"));
    let log = log::captured();
    assert!(log.contains("panicked in a lookup") && log.contains("needs_post"), "{log}");
    assert!(!log.contains(key), "{log}");
}
