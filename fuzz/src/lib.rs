//! Fuzz targets: functions that read any bytes and panic if the code breaks a promise.
//!
//! `fuzz/run` searches for such bytes. The inputs from which it begins (`seeds`) and those that it
//! keeps (`corpora`) are replayed by an ordinary test, `tests/runtime/corpora.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target fails by panicking"
)]

mod canonical_json;
mod cost;
mod digest;
mod duration;
mod headers;
mod input;
mod key;
mod multipart;
mod recording;
mod redis_record;
mod respelled;
mod rfc_8785;
mod url;

use std::{fs, path::Path};

pub use cost::costs;

/// A function to fuzz.
#[derive(Debug)]
pub struct Target {
    /// The name of the function, and of its corpus.
    pub name: &'static str,
    /// Panics if the code breaks a promise on this input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 10] = [
    Target { name: "canonical_json", run: canonical_json::run },
    Target { name: "cost", run: cost::run },
    Target { name: "digest", run: digest::run },
    Target { name: "duration", run: duration::run },
    Target { name: "headers", run: headers::run },
    Target { name: "key", run: key::run },
    Target { name: "multipart", run: multipart::run },
    Target { name: "recording", run: recording::run },
    Target { name: "redis_record", run: redis_record::run },
    Target { name: "url", run: url::run },
];

impl Target {
    /// Returns the target of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Reads the inputs of a folder, `seeds` (written by hand) or `corpora` (kept by `fuzz/run`):
    /// one per line, with `\xNN` in place of bytes that are not printable.
    ///
    /// # Panics
    /// Panics if the file cannot be read.
    #[must_use]
    pub fn inputs(&self, folder: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let text = fs::read_to_string(folder.join(self.name).with_extension("txt")).unwrap();
        text.lines().map(unescaped).collect()
    }
}

fn unescaped(line: &str) -> Vec<u8> {
    let (plain, escaped) = line.split_once("\\x").unwrap_or((line, ""));
    let mut bytes = plain.as_bytes().to_vec();
    for part in escaped.split("\\x").filter(|part| !part.is_empty()) {
        let (digits, plain) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        bytes.extend(plain.as_bytes());
    }
    bytes
}
