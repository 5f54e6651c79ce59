//! What the stores on a server share: its health, and the thread that drives their connections.

pub mod health;
pub mod io_thread;
mod no_response;
mod time_limit;

pub use no_response::NoResponse;
pub use time_limit::within;
