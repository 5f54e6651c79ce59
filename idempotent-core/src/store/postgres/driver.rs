//! The thread that drives the connections.
//!
//! A connection is bound to the runtime that it was opened on: if that one stops, the connection breaks, and while that one is busy,
//! whoever waits for an answer on the connection waits with it, on whatever runtime. A pool that several workers share has both
//! troubles. So the store opens its connections in the context of a runtime that does nothing else and never stops. Statements are
//! still sent and their rows read by the caller's own task; only the wake-up comes from here.

use std::{
    pin::Pin,
    sync::{Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
    thread,
};

use tokio::runtime::{Builder, Handle};

use crate::error::StoreError;

/// One for all stores of the process. It is never stopped, since pools outlive stores.
static DRIVER: OnceLock<Handle> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

fn driver() -> Result<&'static Handle, std::io::Error> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let body = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("idempotency-pg".into()).spawn(body)?;
    Ok(DRIVER.get_or_init(|| handle))
}

/// Runs a call so that whatever it opens, spawns or sleeps on belongs to the driver.
pub(super) async fn driven<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>> + Send,
) -> Result<T, StoreError> {
    let driver = driver().map_err(|error| StoreError::transient(super::NAME, operation, error))?;
    Driven { driver, call: Some(Box::pin(call)) }.await
}

/// Drops something so that whatever it spawns belongs to the driver.
pub(super) fn entered(drop: impl FnOnce()) {
    let _entered = DRIVER.get().map(Handle::enter);
    drop();
}

/// Runs a task on the driver. It is dropped if there is no driver, and so nothing that it could be about.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Some(driver) = DRIVER.get() {
        driver.spawn(task);
    }
}

struct Driven<'a, T> {
    driver: &'static Handle,
    call: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<T> Future for Driven<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let _entered = self.driver.enter();
        match &mut self.call {
            Some(call) => call.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for Driven<'_, T> {
    /// A connection that is given back spawns a task; that too belongs to the driver.
    fn drop(&mut self) {
        let _entered = self.driver.enter();
        self.call = None;
    }
}
