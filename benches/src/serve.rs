//! A server under test: one actix worker, one handler at `POST /work`.

mod floor;
mod layer;
mod statements;

use std::io::{Read, Write as _};

use actix_web::{App, HttpResponse, HttpServer, get, http::header, post, web};
use bytes::Bytes;

use crate::arguments::Arguments;

/// How many allocations there were so far, and their bytes.
type Count = fn() -> (usize, usize);

/// How many bytes an answer has.
#[derive(Clone, Copy)]
struct Size(usize);

/// Serves what the arguments name until its input ends.
pub(crate) fn main(arguments: &Arguments, count: Option<Count>) {
    // Whoever started this has gone when nobody can write to it any more.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    if arguments.has("statements") {
        statements::count_them();
    }
    actix_web::rt::System::new().block_on(serve(arguments, count));
}

async fn serve(arguments: &Arguments, count: Option<Count>) {
    let (kind, store) =
        (arguments.text("kind").unwrap_or("bare").to_owned(), arguments.text("store").unwrap_or("memory:"));
    let url = store.to_owned();
    let size = web::Data::new(Size(arguments.number("answer", 1024)));
    let layer = if kind.starts_with("layer") { Some(layer::open(arguments, store).await) } else { None };
    let floor = if kind.starts_with("floor") { Some(floor::Floor::open(store).await) } else { None };
    let server = HttpServer::new(move || {
        let app = App::new().app_data(size.clone()).app_data(web::Data::new(count)).service(counts);
        match (&layer, &floor) {
            (Some(layer), _) => app.app_data(layer.clone()).configure(|app| layer::routes(&kind, &url, app)),
            (_, Some(floor)) => floor.clone().routes(&kind, app),
            _ => app.service(bare),
        }
    })
    .workers(arguments.number("workers", 1))
    .bind(("127.0.0.1", arguments.number("port", 0)))
    .unwrap();
    println!("listening on {}", server.addrs()[0]);
    server.run().await.unwrap();
}

/// The handler that every contestant has.
#[post("/work")]
async fn bare(body: Bytes, size: web::Data<Size>) -> HttpResponse {
    work(&body, &size)
}

fn work(body: &Bytes, size: &Size) -> HttpResponse {
    created(answer(body, size))
}

/// An answer of so many bytes of JSON.
fn answer(body: &Bytes, &Size(size): &Size) -> Bytes {
    const END: &[u8] = b"\"}";
    let mut answer = Vec::with_capacity(size.max(64));
    let _ = write!(answer, r#"{{"status":"succeeded","received":{},"receipt":""#, body.len());
    answer.resize(size.saturating_sub(END.len()).max(answer.len()), b'x');
    answer.extend_from_slice(END);
    answer.truncate(size);
    answer.into()
}

fn created(answer: Bytes) -> HttpResponse {
    HttpResponse::Created().insert_header((header::CONTENT_TYPE, "application/json")).body(answer)
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
    fn answers_have_the_size_that_is_asked_for() {
        for size in [0, 1, 100, 1024, 1 << 20] {
            assert_eq!(answer(&Bytes::from_static(b"{}"), &Size(size)).len(), size);
        }
    }
}
