//! Keeps the session cookie of each key, and adds it to requests, as a browser would.

use std::{cell::RefCell, collections::HashMap};

use actix_web::{
    Error,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE},
    middleware::Next,
    web::Data,
};

/// The cookies of one worker, by idempotency key.
#[derive(Default)]
pub struct Jar(RefCell<HashMap<HeaderValue, HeaderValue>>);

/// Adds the key's cookie to the request, and keeps the cookie that the session middleware sets.
pub async fn add_cookie(
    mut request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let jar = request.app_data::<Data<Jar>>().cloned();
    let (Some(jar), Some(key)) = (jar, request.headers().get("idempotency-key").cloned()) else {
        return next.call(request).await;
    };
    if let Some(cookie) = jar.0.borrow().get(&key) {
        request.headers_mut().insert(COOKIE, cookie.clone());
    }
    let response = next.call(request).await?;
    if let Some(cookie) = cookie_of(response.headers()) {
        jar.0.borrow_mut().insert(key, cookie);
    }
    Ok(response)
}

/// The name and value of the cookie that a response sets, if any.
fn cookie_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let pair = headers.get(SET_COOKIE)?.to_str().ok()?.split(';').next()?;
    HeaderValue::from_str(pair).ok()
}
