//! Stores whose time the tests can move, for the conformance suite.

pub mod redis;
