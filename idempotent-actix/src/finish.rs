//! Middleware that keeps other middleware running when the client disconnects.

use std::{
    fmt,
    future::{Future, Ready, ready},
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    Error, HttpMessage,
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
};
use futures_util::future::LocalBoxFuture;
use tracing::Span;

use crate::run::{OperationStart, detach};

/// Middleware that keeps all middleware inside it running when the client disconnects during a
/// guarded operation.
///
/// actix-web drops the future of a request when the client disconnects (HTTP/1.1). Without this
/// middleware, the guarded handler then continues alone, in a separate task, and the middleware
/// around it ends. Use this middleware if that is not enough:
///
/// * if the handler reads task-locals that other middleware sets. They end with that middleware,
///   possibly before the handler starts, because the key is claimed first. A handler that needs one
///   then panics, and its attempt is abandoned.
/// * if other middleware has work to do after the response, such as saving a session or writing an
///   audit log.
///
/// `tracing` spans are kept in either case.
///
/// It has to be the outermost middleware. With `App::wrap` that is the middleware that is added
/// last:
///
/// ```
/// use actix_web::{App, middleware::Logger};
/// use idempotent_actix::{FinishAfterDisconnect, Idempotency, store::MemoryStore};
///
/// let idempotency = Idempotency::new(MemoryStore::new());
/// let app = App::new()
///     .app_data(idempotency.clone())
///     .wrap(Logger::default())
///     .wrap(FinishAfterDisconnect);
/// # let _ = app;
/// ```
///
/// A request whose operation has not started when the client disconnects is dropped, as it is
/// without this middleware.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinishAfterDisconnect;

impl<S, B> Transform<S, ServiceRequest> for FinishAfterDisconnect
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Transform = FinishAfterDisconnectService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(FinishAfterDisconnectService { service }))
    }
}

/// The service of [`FinishAfterDisconnect`].
#[derive(Debug)]
pub struct FinishAfterDisconnectService<S> {
    service: S,
}

impl<S, B> Service<ServiceRequest> for FinishAfterDisconnectService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    S::Future: 'static,
    B: 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Future = FinishAfterDisconnectResponse<Result<ServiceResponse<B>, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let outer = request.extensions().get::<OperationStart>().cloned();
        let is_outermost = outer.is_none();
        let start = outer.unwrap_or_else(|| {
            let start = OperationStart::default();
            request.extensions_mut().insert(start.clone());
            start
        });
        let (operation, response) = (start.clone(), self.service.call(request));
        let response = Box::pin(async move {
            let response = response.await;
            // If an application has added this middleware twice, the outer one ends last.
            if is_outermost {
                operation.middleware_has_ended();
            }
            response
        });
        FinishAfterDisconnectResponse { response: Some(response), start, span: Span::current() }
    }
}

/// The future of [`FinishAfterDisconnectService`]. If it is dropped after a guarded operation has
/// started, it finishes in a separate task.
pub struct FinishAfterDisconnectResponse<T: 'static> {
    /// Taken out while it is polled, so that a future that panicked is not polled again.
    response: Option<LocalBoxFuture<'static, T>>,
    start: OperationStart,
    span: Span,
}

impl<T: 'static> Future for FinishAfterDisconnectResponse<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut response) = self.response.take() else { return Poll::Pending };
        let polled = response.as_mut().poll(cx);
        if polled.is_pending() {
            self.response = Some(response);
        }
        polled
    }
}

impl<T: 'static> Drop for FinishAfterDisconnectResponse<T> {
    fn drop(&mut self) {
        if let Some(response) = self.response.take().filter(|_| self.start.has_started()) {
            detach(response, self.span.clone());
        }
    }
}

impl<T: 'static> fmt::Debug for FinishAfterDisconnectResponse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FinishAfterDisconnectResponse")
    }
}
