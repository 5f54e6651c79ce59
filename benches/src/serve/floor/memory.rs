//! A map of answers.

use std::{collections::HashMap, sync::Mutex};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;

use super::{
    super::{Size, answer, created},
    key,
};

pub(super) type Answers = Mutex<HashMap<Vec<u8>, Bytes>>;

/// Reads; what is not there is done and kept.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    answers: web::Data<Answers>,
) -> HttpResponse {
    let kept = answers.lock().unwrap().get(key(&request)).cloned();
    created(kept.unwrap_or_else(|| {
        let answer = answer(&body, &size);
        answers.lock().unwrap().insert(key(&request).to_vec(), answer.clone());
        answer
    }))
}
