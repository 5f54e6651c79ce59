//! The bank of the page: a server in the front process. It knows no
//! idempotency keys: each call is a charge.

use std::{error::Error, sync::Arc};

use actix_web::{
    App, HttpResponse, HttpServer, post,
    rt::spawn,
    web::{Data, Path},
};
use serde_json::json;

use crate::demo::{Side, checkout::Charge, visits::Visits};

/// Starts the bank on a free port, and returns its URL.
pub(crate) fn start(visits: &Arc<Visits>) -> Result<String, Box<dyn Error + Send + Sync>> {
    let visits = Data::from(visits.clone());
    let app = move || App::new().app_data(visits.clone()).service(charge);
    let server = HttpServer::new(app).workers(1).disable_signals().bind("127.0.0.1:0")?;
    let address = *server.addrs().first().ok_or("the bank has no address")?;
    spawn(server.run());
    Ok(format!("http://{address}"))
}

/// Books a charge on the card of a user, and responds when the bank is fast enough.
#[post("/{side}/{user}/{amount}")]
async fn charge(path: Path<(Side, String, u32)>, visits: Data<Visits>) -> HttpResponse {
    let (side, user, amount) = path.into_inner();
    let Some((visit, run)) = visits.of_user(&user) else {
        return HttpResponse::NotFound().json(json!({ "error": "there is no such card" }));
    };
    let Some(charge) = visit.charge(run, side, amount) else {
        return HttpResponse::ServiceUnavailable().json(json!({ "error": "the bank is down" }));
    };
    visit.bank_delay(run).await;
    HttpResponse::Ok().json(Charge { charge, amount })
}
