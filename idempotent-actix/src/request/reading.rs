//! Reading the body before the other extractors do.

use std::{
    cell::RefCell,
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::{Error, HttpMessage, HttpRequest, dev::Payload};
use futures_util::Stream;
use idempotent_core::Digester;
use idempotent_http::digest::BodyForm;

use super::{
    Guard, KeyedRequest,
    body_buffer::{BodyBuffer, BodyEnd},
    checks::{is_cut, refuse, too_large, websocket_body_length},
    key::PendingKey,
};
use crate::{
    declaration::markers::{BodyUse, ConfiguredHeader, HeadForm, KeyOrigin, Methods, Presence},
    operation::extraction::RequestOperation,
};

/// Reads the body, then resolves to the guard.
pub struct GuardFuture<K, M, B, S = ConfiguredHeader> {
    guard: Option<Result<Guard<K, M, B, S>, Error>>,
    /// The key, if it is read from the body.
    pending: Option<PendingKey>,
    /// The request's own payload, until it is read.
    source: Option<Payload>,
    body: Rc<RefCell<BodyBuffer>>,
    /// Hashes the body as it arrives, if its bytes count as sent.
    digester: Option<Digester>,
    /// The length of the body by `Content-Length`.
    stated: Option<usize>,
    /// Bytes read so far.
    length: usize,
    /// The body's length, if the payload does not end with the body.
    end: Option<usize>,
}

impl<K, M, B, S> Unpin for GuardFuture<K, M, B, S> {}

impl<K, M, B, S> Drop for GuardFuture<K, M, B, S> {
    /// A body that was not read to its end never will be, and a task that an extractor has started
    /// may wait for it.
    fn drop(&mut self) {
        let waker = self.body.borrow_mut().finish(BodyEnd::Broken);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<K, M, B, S> fmt::Debug for GuardFuture<K, M, B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardFuture")
    }
}

impl<K, M, B, S> GuardFuture<K, M, B, S> {
    pub(super) fn ready(guard: Result<Guard<K, M, B, S>, Error>) -> Self {
        let (pending, source, body, digester) = (None, None, Rc::default(), None);
        let (guard, stated) = (Some(guard), None);
        Self { guard, pending, source, body, digester, stated, length: 0, end: None }
    }

    pub(super) fn refused(error: Error) -> Self {
        Self::ready(Err(error))
    }

    /// Reads the next chunks. An error is the response that refuses the request.
    ///
    /// `counts`: whether the body is part of the fingerprint, or contains the key.
    fn read(
        &mut self,
        source: &mut Payload,
        counts: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let Some(Ok(guard)) = &self.guard else { return Poll::Ready(Ok(())) };
        let (idempotency, request) = (&guard.idempotency, &guard.request);
        while self.end.is_none_or(|end| self.length < end) {
            let Some(chunk) = ready!(Pin::new(&mut *source).poll_next(cx)) else { break };
            let mut chunk = chunk?;
            if let Some(end) = self.end {
                chunk.truncate(end - self.length);
            }
            self.length = self.length.saturating_add(chunk.len());
            if self.length > idempotency.settings().body_limit {
                return Poll::Ready(Err(refuse(idempotency, &too_large(idempotency), request)));
            }
            if let Some(digester) = &mut self.digester {
                digester.update(&chunk);
            }
            self.body.borrow_mut().push(chunk);
        }
        if counts && is_cut(request, source, self.length, self.stated) {
            return Poll::Ready(Err(super::checks::body_is_gone(idempotency, request)));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the key from the body, if it is there. An error is the response that refuses the
    /// request.
    ///
    /// `required` is what the attribute says.
    fn read_key(&mut self, required: bool) -> Result<(), Error> {
        let (Some(pending), Some(Ok(guard))) = (self.pending.take(), &mut self.guard) else {
            return Ok(());
        };
        let body = self.body.borrow_mut().joined();
        let required = guard.idempotency.requires_key(&guard.request, required);
        let key = pending.read(required, &guard.idempotency, &guard.request, &body)?;
        guard.keyed = key.map(KeyedRequest::new);
        let context = guard.keyed.as_ref().map(|keyed| keyed.context.clone());
        let operation = context.clone().map_or(RequestOperation::Unkeyed, RequestOperation::Keyed);
        guard.request.extensions_mut().insert(operation);
        pending.operation.resolve(Ok(context));
        Ok(())
    }

    /// Lets the other extractors read the body.
    fn finish(&mut self, form: BodyForm, head: HeadForm) {
        let raw = self.digester.take();
        let mut body = self.body.borrow_mut();
        if let Some(Ok(Guard { request, keyed: Some(keyed), .. })) = &mut self.guard {
            keyed.content = head.content(form, request, raw, &mut body);
        }
        let waker = body.finish(BodyEnd::Complete);
        drop(body);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<K, M, B: BodyUse, S> GuardFuture<K, M, B, S> {
    pub(super) fn reading(
        guard: Guard<K, M, B, S>,
        pending: Option<PendingKey>,
        source: Payload,
        body: Rc<RefCell<BodyBuffer>>,
        stated: Option<usize>,
    ) -> Self {
        let request: &HttpRequest = &guard.request;
        let digester = (B::FORM == BodyForm::Raw).then(|| B::HEAD.digester(request, BodyForm::Raw));
        let end = websocket_body_length(request);
        let (guard, source) = (Some(Ok(guard)), Some(source));
        Self { guard, pending, source, body, digester, stated, length: 0, end }
    }
}

impl<K: Presence, M: Methods, B: BodyUse, S: KeyOrigin> Future for GuardFuture<K, M, B, S> {
    type Output = Result<Guard<K, M, B, S>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(mut source) = self.source.take() {
            let counts = B::FORM != BodyForm::Ignored || self.pending.is_some();
            match self.read(&mut source, counts, cx) {
                Poll::Pending => {
                    self.source = Some(source);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) => {
                    self.read_key(K::REQUIRED)?;
                    self.finish(B::FORM, B::HEAD);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        // actix does not poll an extractor again once it is ready.
        self.guard.take().map_or(Poll::Pending, Poll::Ready)
    }
}
