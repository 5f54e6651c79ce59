//! The JSON API: all that the pages have, for programs.

use std::str::FromStr;

use actix_web::{
    HttpResponse, get, post,
    web::{Data, Json, Path, Query, ServiceConfig, scope},
};
use idempotent_core::{
    EncodedRecording,
    report::{CountView, SeenAttempt},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    bulk::{self, Bulk, BulkAction},
    decisions::{Decision, GivenOutcome, actor, decide, recording_of_result},
    failure::Failure,
    parts::ConsoleParts,
    records::{self, ClientKey, ListQuery, invalid},
    visit::Visit,
};

pub(crate) fn routes(config: &mut ServiceConfig) {
    config.service(
        scope("/api")
            .service(overview)
            .service(list)
            .service(find)
            .service(record)
            .service(resolve)
            .service(release)
            .service(forget)
            .service(log)
            .service(select)
            .service(decide_all),
    );
}

type Response = Result<HttpResponse, Failure>;

fn ok(value: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().json(value)
}

/// The counts of records, and of the requests of this process.
#[get("/overview")]
async fn overview(console: Data<ConsoleParts>) -> Response {
    let count = CountView::from(&console.administrator.count().await?);
    let mut requests = Map::new();
    for count in console.counts.recent() {
        let counts = json!({ "last_minute": count.last_minute, "last_hour": count.last_hour });
        requests.insert(count.outcome.label().to_owned(), counts);
    }
    Ok(ok(&json!({ "records": count, "requests_of_this_process": requests })))
}

#[get("/records")]
async fn list(console: Data<ConsoleParts>, query: Query<ListQuery>) -> Response {
    Ok(ok(&records::list(&console, &query).await?))
}

/// The id of the record of a client's key. The record may be absent.
#[post("/find")]
async fn find(console: Data<ConsoleParts>, key: Json<ClientKey>) -> Response {
    let id = records::id_of_key(&console, &key)?;
    Ok(ok(&json!({ "id": id.to_string() })))
}

#[get("/records/{id}")]
async fn record(console: Data<ConsoleParts>, digits: Path<String>) -> Response {
    let id = records::id_of(&console, &digits).await?;
    Ok(ok(&records::whole(&console, &id).await?))
}

/// A decision about one record, as the caller saw it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenDecision {
    seen: String,
    reason: String,
}

/// A completion, with the response or with the result of a job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Completed {
    seen: String,
    reason: String,
    response: Option<GivenOutcome>,
    result: Option<Value>,
}

#[post("/records/{id}/resolve")]
async fn resolve(
    console: Data<ConsoleParts>,
    visit: Visit,
    digits: Path<String>,
    completed: Json<Completed>,
) -> Response {
    let Completed { seen, reason, response, result } = completed.into_inner();
    let decision = Decision::Complete(recording(response, result.as_ref())?);
    decided(&console, &visit, &digits, &GivenDecision { seen, reason }, &decision).await
}

fn recording(
    response: Option<GivenOutcome>,
    result: Option<&Value>,
) -> Result<EncodedRecording, Failure> {
    match (response, result) {
        (Some(response), None) => response.recording(),
        (None, Some(result)) => recording_of_result(result),
        _ => Err(Failure::Invalid("say what clients get: either `response` or `result`".into())),
    }
}

#[post("/records/{id}/release")]
async fn release(
    console: Data<ConsoleParts>,
    visit: Visit,
    digits: Path<String>,
    given: Json<GivenDecision>,
) -> Response {
    decided(&console, &visit, &digits, &given, &Decision::Release).await
}

#[post("/records/{id}/forget")]
async fn forget(
    console: Data<ConsoleParts>,
    visit: Visit,
    digits: Path<String>,
    given: Json<GivenDecision>,
) -> Response {
    decided(&console, &visit, &digits, &given, &Decision::Forget).await
}

async fn decided(
    console: &ConsoleParts,
    visit: &Visit,
    digits: &str,
    given: &GivenDecision,
    decision: &Decision,
) -> Response {
    let actor = actor(visit, &given.reason)?;
    let seen = SeenAttempt::from_str(&given.seen).map_err(|error| invalid(&error))?;
    let id = records::id_of(console, digits).await?;
    decide(console, &id, seen, decision, &actor).await?;
    Ok(ok(&json!({ "id": id.to_string() })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    #[serde(default)]
    after: String,
}

/// The decisions of operators, the latest first.
#[get("/log")]
async fn log(console: Data<ConsoleParts>, query: Query<LogQuery>) -> Response {
    let page = records::audit_page(&console, &query.after).await?;
    Ok(ok(&page))
}

/// The held operations that a filter selects, and `seen` for a decision about them.
#[get("/bulk")]
async fn select(console: Data<ConsoleParts>, query: Query<ListQuery>) -> Response {
    let selected = bulk::select(&console, &query).await?;
    Ok(ok(&json!({
        "count": selected.records.len(),
        "is_cut": selected.is_cut,
        "seen": selected.seen(),
        "records": selected.records,
    })))
}

/// A decision about all held operations that a filter selects and that were seen.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecidedAll {
    #[serde(default)]
    filter: ListQuery,
    seen: String,
    reason: String,
    action: BulkAction,
    response: Option<GivenOutcome>,
    result: Option<Value>,
}

#[post("/bulk")]
async fn decide_all(
    console: Data<ConsoleParts>,
    visit: Visit,
    given: Json<DecidedAll>,
) -> Response {
    let DecidedAll { filter, seen, reason, action, response, result } = given.into_inner();
    let actor = actor(&visit, &reason)?;
    let decision = match action {
        BulkAction::Complete => Decision::Complete(recording(response, result.as_ref())?),
        BulkAction::Release => Decision::Release,
    };
    let seen = bulk::seen_attempts(&seen)?;
    let bulk = Bulk::new(&console, &filter, &seen, decision, actor).await?;
    Ok(ok(&bulk.finish().await))
}
