//! Stores whose time the tests can move, for the conformance suite.

use std::time::Duration;

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod rows;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Long, so that each history runs in less than a quarter of a tick, even on a busy machine.
const TICK: Duration = Duration::from_secs(3600);
