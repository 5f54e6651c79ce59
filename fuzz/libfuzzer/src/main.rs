//! Runs the target that the variable `FUZZ_TARGET` names under libFuzzer; `fuzz/run` starts it.
#![no_main]
#![allow(clippy::unwrap_used, reason = "`fuzz/run` sets the variable")]

use std::sync::LazyLock;

use fuzz_targets::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static Target> =
    LazyLock::new(|| Target::named(&std::env::var("FUZZ_TARGET").unwrap()).unwrap());

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
