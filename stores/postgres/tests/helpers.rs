//! Helpers that the tests share.

pub(crate) use test_support::{
    administering::{id, request},
    servers::postgres::{database, number, sql},
    subjects::postgres::{store, store_with},
};

/// A URL with another parameter.
pub(crate) fn with(url: &str, parameter: &str) -> String {
    format!("{url}&{parameter}")
}
