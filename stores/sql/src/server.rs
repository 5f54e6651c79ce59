//! What the stores on a server share: its health, and the thread that drives their connections.

pub mod health;
pub mod io_thread;
mod no_response;

pub use no_response::NoResponse;
