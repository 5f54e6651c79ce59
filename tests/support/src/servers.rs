//! Private database servers, on free ports and in temporary directories.

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "mysql")]
pub mod mariadb;
#[cfg(feature = "postgres")]
pub mod pgbouncer;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub mod process;
#[cfg(feature = "redis")]
pub mod redis;
