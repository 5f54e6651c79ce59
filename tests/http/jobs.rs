//! `Idempotency::run`: operations of an application that are not requests.

use actix_web::{App, HttpResponse, post, web};
use idempotent_actix::{
    Idempotency, Key,
    job::{Done, Failure, Job, RunError},
    scope::ScopeId,
};
use test_support::{Probe, Request, Server, TestApp, wait_for};
use tokio::sync::oneshot;

const RESERVE: Job = Job::new("reserve item");

type Reserved = Result<Done<u32>, RunError>;

fn scope() -> ScopeId {
    ScopeId::of("customer", "7")
}

fn key(text: &str) -> Key {
    Key::from_text(text).unwrap()
}

/// One item of a batch, which fails for good if it is out of stock, and for now if it is busy.
#[derive(serde::Deserialize, serde::Serialize)]
struct Item {
    key: String,
    sku: String,
}

#[post("/batch")]
async fn reserve_all(
    idempotency: web::Data<Idempotency>,
    probe: web::Data<Probe>,
    items: web::Json<Vec<Item>>,
) -> HttpResponse {
    let mut results = Vec::new();
    for Item { key: text, sku } in items.into_inner() {
        let run = idempotency.run(&RESERVE, &scope(), &key(&text), &sku, |_| async {
            probe.run().await;
            match sku.as_str() {
                "gone" => Err(Failure::Final("out of stock".to_owned())),
                "busy" if probe.runs() < 4 => Err(Failure::Retryable("busy".to_owned())),
                _ => Ok(sku.clone()),
            }
        });
        results.push(match run.await {
            Ok(done) => format!("{} {}", done.value, done.replayed),
            Err(RunError::Final { error, replayed, .. }) => format!("{error} {replayed}"),
            Err(error) => error.to_string(),
        });
    }
    HttpResponse::MultiStatus().json(results)
}

#[test]
fn each_item_of_a_batch_has_its_own_result() {
    let app = TestApp::new();
    let server = {
        let (idempotency, probe) = (app.idempotency.clone(), app.probe.clone());
        Server::start(move || {
            App::new()
                .app_data(web::Data::new(idempotency.clone()))
                .app_data(web::Data::new(probe.clone()))
                .service(reserve_all)
        })
    };
    let batch = r#"[{"key":"1","sku":"pen"},{"key":"2","sku":"gone"},{"key":"3","sku":"busy"}]"#;
    let send = || server.send(&Request::post("/batch").json(batch)).text().to_owned();
    let busy = "the operation failed and can be run again: busy";
    assert_eq!(send(), format!(r#"["pen false","out of stock false","{busy}"]"#));
    assert_eq!(send(), r#"["pen true","out of stock true","busy false"]"#);
    assert_eq!(send(), r#"["pen true","out of stock true","busy true"]"#);
    assert_eq!(app.probe.runs(), 4);
}

/// The record is where `Idempotency::record_id` looks for it: in the namespace of the handlers.
#[test]
fn the_record_of_a_run_can_be_looked_up() {
    let app = TestApp::new();
    let idempotency = &app.idempotency;
    wait_for("the run", async {
        let work = |_| async { Ok(7) };
        let done: Reserved = idempotency.run(&RESERVE, &scope(), &key("k"), &1, work).await;
        assert_eq!(done.unwrap().value, 7);
        let id = idempotency.record_id(&scope(), RESERVE.name, &key("k")).unwrap();
        let found = idempotency.find_record(&id).await.unwrap().expect("a record");
        assert_eq!(found.record.operation.as_str(), RESERVE.name);
    });
}

/// A run in flight is not lost when the server stops.
#[test]
fn draining_waits_for_runs() {
    let app = TestApp::new();
    let (end, ended) = oneshot::channel();
    wait_for("the drain", async {
        let work = |_| async { Ok(ended.await?) };
        let run = app.idempotency.run(&RESERVE, &scope(), &key("k"), &1, work);
        let run = async {
            let done: Reserved = run.await;
            done.unwrap()
        };
        let drained = app.idempotency.drain(test_support::WAIT_LIMIT);
        let mut drained = std::pin::pin!(drained);
        tokio::select! {
            biased;
            _ = &mut drained => panic!("a run was in flight"),
            () = tokio::task::yield_now() => {}
        }
        end.send(7).unwrap();
        let (done, drained) = tokio::join!(run, drained);
        assert!(done.value == 7 && drained);
    });
}
