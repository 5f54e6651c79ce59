//! The floor of the memory store: a map of responses.

use std::{collections::HashMap, sync::Mutex};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;

use super::{
    super::{Size, created, response},
    key,
};

pub(super) type Responses = Mutex<HashMap<Vec<u8>, Bytes>>;

/// Reads the response; if there is none, does the work and records it.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    responses: web::Data<Responses>,
) -> HttpResponse {
    let recorded = responses.lock().unwrap().get(key(&request)).cloned();
    created(recorded.unwrap_or_else(|| {
        let response = response(&body, &size);
        responses.lock().unwrap().insert(key(&request).to_vec(), response.clone());
        response
    }))
}
