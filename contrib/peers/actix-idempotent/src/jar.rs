//! The cookies of clients that have none: what a browser would send back, kept by key.

use std::{cell::RefCell, collections::HashMap};

use actix_web::{
    Error,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE},
    middleware::Next,
    web::Data,
};

/// The worker's jar.
#[derive(Default)]
pub struct Jar(RefCell<HashMap<HeaderValue, HeaderValue>>);

/// Puts the key's cookie before the middleware of the session, and takes what that sets.
pub async fn carry(
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
    let answer = next.call(request).await?;
    if let Some(cookie) = set(answer.headers()) {
        jar.0.borrow_mut().insert(key, cookie);
    }
    Ok(answer)
}

/// The name and value of the cookie that a response sets.
fn set(headers: &HeaderMap) -> Option<HeaderValue> {
    let pair = headers.get(SET_COOKIE)?.to_str().ok()?.split(';').next()?;
    HeaderValue::from_str(pair).ok()
}
