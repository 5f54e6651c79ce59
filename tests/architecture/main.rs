//! The structure of the workspace: the dependencies of crates, the direction of modules, the
//! contents of packages, the size of files and lines, and what the guides name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod crates;
mod features;
mod guides;
mod layers;
mod modules;
mod packages;
mod pictures;
mod servers;
mod sources;
mod text;

use std::{path::PathBuf, process::Command};

/// The root of the workspace.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The lines that a cargo command prints.
fn cargo(arguments: &[&str]) -> Vec<String> {
    let cargo = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(cargo.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&cargo.stderr));
    String::from_utf8(cargo.stdout).unwrap().lines().map(str::to_owned).collect()
}
