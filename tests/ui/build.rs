//! Sets the same compiler flags for every build that trybuild starts.
//!
//! Cargo sets this variable for the tests of this package, and the variable takes precedence over
//! the flags that trybuild passes. Those differ between its two phases (dependencies, then cases
//! with `--diagnostic-width`), so that without the variable every dependency would be compiled
//! twice.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let flags = ["--cfg", "trybuild", "--verbose", "-A", "dead_code", "--diagnostic-width=140"];
    println!("cargo::rustc-env=CARGO_ENCODED_RUSTFLAGS={}", flags.join("\u{1f}"));
}
