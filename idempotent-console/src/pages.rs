//! The pages, which need no JavaScript.

use std::str::FromStr;

use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::LOCATION,
    post,
    web::{Data, Form, Path, Query, ServiceConfig},
};
use idempotent_core::report::{CountView, SeenAttempt};
use maud::Markup;
use serde::Deserialize;

use crate::{
    decisions::{Decision, OutcomeForm, actor, decide, may_act},
    failure::Failure,
    layout::HTML,
    parts::ConsoleParts,
    records::{self, ClientKey, ListQuery, invalid},
    visit::Visit,
};

mod bulk;
mod confirm;
mod forms;
mod list;
mod log;
mod overview;
mod record;

pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(root)
        .service(style)
        .service(first)
        .service(list_records)
        .service(find)
        .service(find_key)
        .service(show)
        .service(preview)
        .service(complete)
        .service(release)
        .service(forget)
        .service(show_log)
        .configure(bulk::routes);
}

/// A page, or what is shown instead.
fn respond(visit: &Visit, page: Result<Markup, Failure>) -> HttpResponse {
    match page {
        Ok(page) => HttpResponse::Ok().content_type(HTML).body(page.into_string()),
        Err(failure) => failure.response(visit),
    }
}

/// Where to go after a form: a path below the console, relative to the page that was requested.
fn see_other(visit: &Visit, path: &str) -> HttpResponse {
    let location = format!("{}{path}", visit.base);
    HttpResponse::SeeOther().insert_header((LOCATION, location)).finish()
}

/// All links are relative, so the path of the first page ends with a slash.
#[get("")]
async fn root(request: HttpRequest) -> HttpResponse {
    let name = request.path().rsplit('/').next().unwrap_or_default();
    let location = format!("{name}/");
    HttpResponse::PermanentRedirect().insert_header((LOCATION, location)).finish()
}

#[get("/style.css")]
async fn style() -> HttpResponse {
    HttpResponse::Ok().content_type("text/css; charset=utf-8").body(include_str!("style.css"))
}

#[get("/")]
async fn first(console: Data<ConsoleParts>, visit: Visit) -> HttpResponse {
    let page = async {
        let count = CountView::from(&console.administrator.count().await?);
        // The list that an operator comes for.
        let query = ListQuery { state: records::Listed::Held, ..ListQuery::default() };
        let held = records::list(&console, &query).await?;
        Ok(overview::page(&visit, &count, &console.counts.recent(), &held))
    };
    respond(&visit, page.await)
}

#[get("/records")]
async fn list_records(
    console: Data<ConsoleParts>,
    visit: Visit,
    query: Query<ListQuery>,
) -> HttpResponse {
    let page = async {
        let page = records::list(&console, &query).await?;
        Ok(list::page(&visit, &query, &page))
    };
    respond(&visit, page.await)
}

#[derive(Deserialize)]
struct Digits {
    digits: String,
}

/// Finds the record whose id begins with the digits of a log line.
#[get("/find")]
async fn find(console: Data<ConsoleParts>, visit: Visit, query: Query<Digits>) -> HttpResponse {
    match records::id_of(&console, query.digits.trim()).await {
        Ok(id) => see_other(&visit, &format!("records/{id}")),
        Err(failure) => failure.response(&visit),
    }
}

/// Finds the record of a client's key. It is a form that is posted, so that no log has the key.
#[post("/find")]
async fn find_key(console: Data<ConsoleParts>, visit: Visit, key: Form<ClientKey>) -> HttpResponse {
    match records::id_of_key(&console, &key) {
        Ok(id) => see_other(&visit, &format!("records/{id}")),
        Err(failure) => failure.response(&visit),
    }
}

/// What a link to a record may add: what was just done, and what to fill in the form with. A link
/// of another site fills in nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    done: String,
    #[serde(flatten)]
    outcome: OutcomeForm,
}

#[get("/records/{id}")]
async fn show(
    console: Data<ConsoleParts>,
    visit: Visit,
    digits: Path<String>,
    shown: Query<Shown>,
) -> HttpResponse {
    let id = match records::id_of(&console, &digits).await {
        Ok(id) => id,
        Err(failure) => return failure.response(&visit),
    };
    if digits.as_str() != id.to_string() {
        return see_other(&visit, &format!("records/{id}"));
    }
    let shown = shown.into_inner();
    let outcome = if visit.is_same_origin { shown.outcome } else { OutcomeForm::default() };
    let page = async {
        let whole = records::whole(&console, &id).await?;
        Ok(record::page(&visit, &whole, &shown.done, &outcome))
    };
    respond(&visit, page.await)
}

/// What clients would get.
#[derive(Deserialize)]
struct Preview {
    seen: String,
    #[serde(flatten)]
    outcome: OutcomeForm,
}

/// Shows what clients will get, before it is stored.
#[post("/records/{id}/preview")]
async fn preview(
    console: Data<ConsoleParts>,
    visit: Visit,
    digits: Path<String>,
    preview: Form<Preview>,
) -> HttpResponse {
    let page = async {
        may_act(&visit)?;
        let recording = preview.outcome.recording()?;
        let id = records::id_of(&console, &digits).await?;
        let whole = records::whole(&console, &id).await?;
        Ok(confirm::page(&visit, &whole, &preview.seen, &preview.outcome, &recording))
    };
    respond(&visit, page.await)
}

/// The form that confirms a decision.
#[derive(Deserialize)]
struct Confirmed {
    seen: String,
    reason: String,
    #[serde(flatten)]
    outcome: OutcomeForm,
}

#[post("/records/{id}/complete")]
async fn complete(
    console: Data<ConsoleParts>,
    visit: Visit,
    id: Path<String>,
    form: Form<Confirmed>,
) -> HttpResponse {
    match form.outcome.recording() {
        Ok(recording) => {
            let decision = Decision::Complete(recording);
            decided(&console, &visit, &id, &form, &decision).await
        }
        Err(failure) => failure.response(&visit),
    }
}

#[post("/records/{id}/release")]
async fn release(
    console: Data<ConsoleParts>,
    visit: Visit,
    id: Path<String>,
    form: Form<Confirmed>,
) -> HttpResponse {
    decided(&console, &visit, &id, &form, &Decision::Release).await
}

#[post("/records/{id}/forget")]
async fn forget(
    console: Data<ConsoleParts>,
    visit: Visit,
    id: Path<String>,
    form: Form<Confirmed>,
) -> HttpResponse {
    decided(&console, &visit, &id, &form, &Decision::Forget).await
}

/// Decides, and shows the record as it is then.
async fn decided(
    console: &ConsoleParts,
    visit: &Visit,
    digits: &str,
    form: &Confirmed,
    decision: &Decision,
) -> HttpResponse {
    let decided = async {
        let actor = actor(visit, &form.reason)?;
        let seen = SeenAttempt::from_str(&form.seen).map_err(|error| invalid(&error))?;
        let id = records::id_of(console, digits).await?;
        decide(console, &id, seen, decision, &actor).await?;
        Ok::<_, Failure>(id)
    };
    let done = match decision {
        Decision::Complete(_) => "completed",
        Decision::Release => "released",
        Decision::Forget => "forgotten",
    };
    match decided.await {
        Ok(id) => see_other(visit, &format!("records/{id}?done={done}")),
        Err(failure) => failure.response(visit),
    }
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: String,
}

#[get("/log")]
async fn show_log(console: Data<ConsoleParts>, visit: Visit, query: Query<After>) -> HttpResponse {
    let page = async { Ok(log::page(&visit, &records::audit_page(&console, &query.after).await?)) };
    respond(&visit, page.await)
}
