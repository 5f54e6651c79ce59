//! The span of an operation, and links from replays to the trace of the first run.

use actix_web::{App, HttpResponse, post, web::Data};
use idempotent_actix::{idempotent, recording::TraceContext};
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use test_support::{Probe, Request, Server, TestApp};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Registry, layer::SubscriberExt as _};

use super::handlers::User;

#[idempotent(scope = "user", name = "traced")]
#[post("/traced")]
async fn traced(user: User, probe: Data<Probe>) -> HttpResponse {
    let _span = tracing::info_span!("inside the handler").entered();
    probe.note(user.0);
    HttpResponse::Ok().body("r")
}

fn current() -> Option<TraceContext> {
    let span = Span::current().context().span().span_context().clone();
    span.is_valid().then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
    })
}

fn link(first: &TraceContext) {
    let (trace, span) = (TraceId::from_bytes(first.trace_id), SpanId::from_bytes(first.span_id));
    let (flags, state) = (TraceFlags::SAMPLED, TraceState::NONE);
    Span::current().add_link(SpanContext::new(trace, span, flags, true, state));
}

/// Serves `traced` with a tracing system of its own, and returns its spans after these requests.
fn spans_of(app: &TestApp, requests: &[Request]) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let setup = app.setup();
    let of_workers = provider.clone();
    let server = Server::start(move || {
        let layer = tracing_opentelemetry::layer().with_tracer(of_workers.tracer("tests"));
        // The worker's thread keeps it until it ends.
        let subscriber = Registry::default().with(layer);
        std::mem::forget(tracing::subscriber::set_default(subscriber));
        App::new().configure(&setup).service(traced)
    });
    for request in requests {
        assert_eq!(server.send(request).status, 200);
    }
    drop(server);
    provider.force_flush().unwrap();
    exporter.get_finished_spans().unwrap()
}

#[test]
fn a_replay_is_linked_to_the_trace_of_the_first_run() {
    let app = TestApp::set(|builder| builder.traces(current, link));
    let request = Request::post("/traced").user("a-secret-user").key("a-secret-key").body("b");
    let spans = spans_of(&app, &[request.clone(), request]);
    let operations: Vec<_> = spans.iter().filter(|span| span.name == "idempotency").collect();
    let [first, replay] = operations[..] else { panic!("{spans:?}") };
    assert!(first.links.links.is_empty());
    let [link] = &replay.links.links[..] else { panic!("{replay:?}") };
    assert_eq!(link.span_context.trace_id(), first.span_context.trace_id());
    assert_eq!(link.span_context.span_id(), first.span_context.span_id());
    assert_ne!(replay.span_context.trace_id(), first.span_context.trace_id());
    // The handler runs inside.
    let handler = spans.iter().find(|span| span.name == "inside the handler").unwrap();
    assert_eq!(handler.parent_span_id, first.span_context.span_id());
    let field = |span: &SpanData, name: &str| {
        let found = span.attributes.iter().find(|field| field.key.as_str() == name);
        found.map(|field| field.value.as_str().into_owned())
    };
    let id = TestApp::id("a-secret-user", "traced", "a-secret-key").short().to_string();
    for (span, outcome) in [(first, "ran"), (replay, "replayed")] {
        assert_eq!(field(span, "operation").as_deref(), Some("traced"));
        assert_eq!(field(span, "id").as_deref(), Some(&*id));
        assert_eq!(field(span, "outcome").as_deref(), Some(outcome));
    }
    let all = format!("{spans:?}");
    assert!(!all.contains("a-secret"), "{all}");
}

#[test]
fn functions_of_the_tracing_system_may_panic() {
    let app = TestApp::set(|builder| builder.traces(|| panic!("current"), |_| panic!("link")));
    let request = Request::post("/traced").user("a").key("k").body("b");
    assert_eq!(spans_of(&app, &[request.clone(), request.clone()]).len(), 3);
    // A recording with a trace, of an application whose functions do not panic.
    let app = TestApp::set(|builder| builder.traces(current, |_| panic!("link")));
    assert_eq!(spans_of(&app, &[request.clone(), request]).len(), 3);
}
