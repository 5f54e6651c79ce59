//! A server under test: one actix worker, one handler at `POST /work`.

mod floor;
mod layer;
mod statements;
mod store;

use std::{
    io::{Read, Write as _},
    time::Duration,
};

use actix_web::{App, HttpResponse, HttpServer, get, http::header, post, web};
use bytes::Bytes;
use clap::Args;

use crate::duration::seconds;

/// The result of the step of `layer-step` and `floor-step`.
const STEP_RESULT: &[u8] = b"0123456789";

const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Returns the number of allocations and of allocated bytes so far.
type Count = fn() -> (usize, usize);

/// The size of a response in bytes.
#[derive(Clone, Copy)]
struct Size(usize);

/// The options of `serve`
#[derive(Args)]
pub(crate) struct Options {
    /// The contestant
    #[arg(long, default_value = "bare")]
    kind: String,
    /// The URL of the store
    #[arg(long, default_value = "memory:")]
    store: String,
    /// Size of the response body in bytes
    #[arg(long, default_value_t = 1024)]
    response: usize,
    /// Count the statements that sqlx runs
    #[arg(long)]
    statements: bool,
    /// The limit of records in memory; the default is more than half a minute of load creates, and
    /// makes 8192 shards
    #[arg(long, default_value_t = 2_000_000)]
    records: usize,
    /// Seconds between purges; the layer's default if it is not set
    #[arg(long, value_parser = seconds)]
    purge_every: Option<Duration>,
    /// Share a Postgres pool of the application with this number of connections
    #[arg(long)]
    pool: Option<u32>,
}

/// Serves until its standard input ends.
pub(crate) fn main(options: &Options, count: Option<Count>) {
    // Standard input ends when the process that started this one ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if options.statements {
        statements::start_counting();
    }
    #[cfg(feature = "metrics")]
    record_metrics();
    actix_web::rt::System::new().block_on(serve(options, count));
}

/// Installs a recorder, as an application does.
#[cfg(feature = "metrics")]
fn record_metrics() {
    use metrics_exporter_prometheus::PrometheusBuilder;

    let buckets = &idempotent_actix::metrics::SECONDS_BUCKETS;
    let recorder = PrometheusBuilder::new().set_buckets(buckets).unwrap().install_recorder();
    // As in an application that is asked for its metrics, which empties the recorder's buffers.
    let handle = recorder.unwrap();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(5));
            handle.run_upkeep();
        }
    });
}

async fn serve(options: &Options, count: Option<Count>) {
    let (kind, url) = (options.kind.clone(), options.store.clone());
    let size = web::Data::new(Size(options.response));
    let layer = if kind.starts_with("layer") { Some(store::open(options).await) } else { None };
    let floor = if kind.starts_with("floor") { Some(floor::Floor::open(&url).await) } else { None };
    let server = HttpServer::new(move || {
        let app = App::new().app_data(size.clone()).app_data(web::Data::new(count)).service(counts);
        match (&layer, &floor) {
            (Some(layer), _) => {
                app.app_data(layer.clone()).configure(|app| layer::routes(&kind, &url, app))
            }
            (_, Some(floor)) => floor.clone().routes(&kind, app),
            _ => app.service(bare),
        }
    })
    .workers(1)
    // A load at a low rate uses each of its connections rarely.
    .keep_alive(KEEP_ALIVE)
    .bind(("127.0.0.1", 0))
    .unwrap();
    println!("listening on {}", server.addrs()[0]);
    server.run().await.unwrap();
}

/// The handler of every contestant.
#[post("/work")]
async fn bare(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

fn work(body: &Bytes, size: &Size) -> HttpResponse {
    created(response(body, size))
}

/// A JSON response body of exactly `size` bytes.
fn response(body: &Bytes, &Size(size): &Size) -> Bytes {
    const END: &[u8] = b"\"}";
    let mut response = Vec::with_capacity(size.max(64));
    let _ = write!(response, r#"{{"status":"succeeded","received":{},"receipt":""#, body.len());
    response.resize(size.saturating_sub(END.len()).max(response.len()), b'x');
    response.extend_from_slice(END);
    response.truncate(size);
    response.into()
}

fn created(response: Bytes) -> HttpResponse {
    HttpResponse::Created().insert_header((header::CONTENT_TYPE, "application/json")).body(response)
}

#[get("/counts")]
async fn counts(count: web::Data<Option<Count>>) -> HttpResponse {
    let (allocations, bytes) = count.map_or((0, 0), |count| count());
    HttpResponse::Ok().json([allocations, bytes, statements::counted()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_have_the_requested_size() {
        for size in [0, 1, 100, 1024, 1 << 20] {
            assert_eq!(response(&Bytes::from_static(b"{}"), &Size(size)).len(), size);
        }
    }
}
