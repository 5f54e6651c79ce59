//! What the page can do: start a run, pay, change how the bank behaves, kill and start the worker.
//! Each call responds with 200 and says in its body whether it worked, because
//! a browser reports every other status as an error of the page.

use std::sync::Arc;

use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    middleware::from_fn,
    post,
    web::{Data, Json, Query, ServiceConfig, scope},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::demo::{
    Side, events, key,
    origin::refuse_other_sites,
    run::BankMode,
    visit::{Payment, Visit},
    visits::Visits,
};

/// The routes below `/demo`.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config.service(
        scope("/demo/control")
            .wrap(from_fn(refuse_other_sites))
            .service(follow)
            .service(books)
            .service(start_run)
            .service(pay)
            .service(give_up)
            .service(set_bank)
            .service(kill_worker)
            .service(start_worker),
    );
}

/// The visit that a call belongs to.
#[derive(Deserialize)]
struct Of {
    visit: String,
    #[serde(default)]
    run: u64,
}

impl Of {
    fn visit(&self, visits: &Visits) -> Result<Arc<Visit>, String> {
        visits.find(&self.visit).ok_or_else(|| "this visit has ended; load the page again".into())
    }
}

/// The result of a call.
fn respond(result: Result<Value, String>) -> HttpResponse {
    let body = match result {
        Ok(value) => json!({ "ok": true, "value": value }),
        Err(error) => json!({ "ok": false, "error": error }),
    };
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(body)
}

/// The events, as server-sent events.
#[get("/events")]
async fn follow(request: HttpRequest, of: Query<Of>, visits: Data<Visits>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response.insert_header((CONTENT_TYPE, "text/event-stream"));
    response.insert_header((CACHE_CONTROL, "no-store"));
    let visit = visits.open(&of.visit);
    let visit = visit.and_then(|visit| match visit.log.streams() < events::MAX_STREAMS {
        true => Ok(visit),
        false => Err("this page is open in too many tabs"),
    });
    match visit {
        Ok(visit) => {
            let last = request.headers().get("Last-Event-ID").and_then(|id| id.to_str().ok());
            response.streaming(visit.log.clone().stream(last))
        }
        Err(error) => {
            let event = json!({ "type": "refused", "error": error });
            response.body(format!("retry: 5000\ndata: {event}\n\n"))
        }
    }
}

/// What the bank and the store have.
#[get("/books")]
async fn books(of: Query<Of>, visits: Data<Visits>) -> HttpResponse {
    let find = async {
        let visit = of.visit(&visits)?;
        let mut books = visit.with_run(of.run, |run| run.to_json()).ok_or("no such run")?;
        let record = key::record(&visit, of.run).await?;
        if let Some(books) = books.as_object_mut() {
            books.insert("record".to_owned(), record);
        }
        Ok(books)
    };
    respond(find.await)
}

#[post("/start")]
async fn start_run(of: Json<Of>, visits: Data<Visits>) -> HttpResponse {
    let started = async {
        let visit = visits.open(&of.visit)?;
        let bank = visits.clone().into_inner();
        let run = visit.start(bank.bank().map_err(|cause| cause.to_string())?).await;
        run.map(|run| json!({ "run": run })).map_err(|cause| cause.to_string())
    };
    respond(started.await)
}

#[derive(Deserialize)]
struct Pay {
    #[serde(flatten)]
    of: Of,
    side: Side,
    amount: u32,
    #[serde(default)]
    label: String,
    #[serde(default)]
    loses_response: bool,
}

#[post("/pay")]
async fn pay(pay: Json<Pay>, visits: Data<Visits>) -> HttpResponse {
    let Pay { of, side, amount, label, loses_response } = pay.into_inner();
    let send = || {
        if !(1..=99_999_999).contains(&amount) {
            return Err("the amount must be from 0.01 to 999,999.99".to_owned());
        }
        let label = label.chars().take(40).collect();
        let payment = Payment { run: of.run, side, amount, label, loses_response };
        Ok(json!({ "request": of.visit(&visits)?.pay(payment)? }))
    };
    respond(send())
}

#[derive(Deserialize)]
struct GiveUp {
    #[serde(flatten)]
    of: Of,
    request: u32,
}

/// The shopper closes a connection before there is a response.
#[post("/give_up")]
async fn give_up(give_up: Json<GiveUp>, visits: Data<Visits>) -> HttpResponse {
    let GiveUp { of, request } = give_up.into_inner();
    let given_up = of.visit(&visits).and_then(|visit| {
        let given_up = visit.with_run(of.run, |run| run.give_up(Some(request)));
        given_up.map(|()| Value::Null).ok_or_else(|| "there is a newer run".to_owned())
    });
    respond(given_up)
}

#[derive(Deserialize)]
struct SetBank {
    #[serde(flatten)]
    of: Of,
    mode: BankMode,
}

#[post("/bank")]
async fn set_bank(set: Json<SetBank>, visits: Data<Visits>) -> HttpResponse {
    let SetBank { of, mode } = set.into_inner();
    let set = of.visit(&visits).and_then(|visit| {
        let set = visit.with_run(of.run, |run| {
            run.bank.send_replace(mode);
            visit.log.push(&run.event("bank", json!({ "mode": mode })));
        });
        set.map(|()| Value::Null).ok_or_else(|| "there is a newer run".to_owned())
    });
    respond(set)
}

#[post("/kill")]
async fn kill_worker(of: Json<Of>, visits: Data<Visits>) -> HttpResponse {
    let visit = match of.visit(&visits) {
        Ok(visit) => visit,
        Err(error) => return respond(Err(error)),
    };
    visit.kill_worker().await;
    respond(Ok(Value::Null))
}

#[post("/restart")]
async fn start_worker(of: Json<Of>, visits: Data<Visits>) -> HttpResponse {
    let started = async {
        let bank = visits.clone().into_inner();
        let bank = bank.bank().map_err(|cause| cause.to_string())?;
        let id = of.visit(&visits)?.start_worker(bank).await;
        id.map(|id| json!({ "process": id })).map_err(|cause| cause.to_string())
    };
    respond(started.await)
}
