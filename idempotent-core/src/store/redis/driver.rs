//! The thread that follows Sentinels and clusters for all stores of a process. It outlives the
//! runtimes that use them.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use tokio::runtime::{Builder, Handle};

use super::error::Failure;

static DRIVER: OnceLock<Handle> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// Starts the thread if it does not run yet.
pub(super) fn driver() -> Result<&'static Handle, Failure> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::no_driver)?;
    let handle = runtime.handle().clone();
    let body = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("idempotency-redis".into()).spawn(body).map_err(Failure::no_driver)?;
    Ok(DRIVER.get_or_init(|| handle))
}
