//! A copy of the core in which each guard can be removed, and its unit tests.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    FILES,
    switches::{Guard, SWITCH, add_switches},
};
use crate::mutants::folder;

/// The tests end within seconds, also on a busy machine. Without some guards a list has no end.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The unit tests of the core, compiled with a switch for each guard.
pub(super) struct Copy {
    root: tempfile::TempDir,
    tests: PathBuf,
    pub(super) guards: Vec<Guard>,
}

impl Copy {
    /// Copies the core into a workspace of its own, and compiles its unit tests.
    pub(super) fn new() -> Self {
        let (root, from) = (tempfile::tempdir().unwrap(), folder("."));
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (before, after) = manifest.split_once("members = [").unwrap();
        let (_, after) = after.split_once(']').unwrap();
        let manifest = format!("{before}members = [\"idempotent-core\"]{after}");
        fs::write(root.path().join("Cargo.toml"), manifest).unwrap();
        fs::copy(from.join("Cargo.lock"), root.path().join("Cargo.lock")).unwrap();
        copy_all(&from.join("idempotent-core"), &root.path().join("idempotent-core"));
        let source = root.path().join("idempotent-core/src");
        let mut guards = Vec::new();
        for file in FILES {
            let text = fs::read_to_string(source.join(file)).unwrap();
            fs::write(source.join(file), add_switches(file, &text, &mut guards)).unwrap();
        }
        let library = fs::read_to_string(source.join("lib.rs")).unwrap();
        fs::write(source.join("lib.rs"), ["#![allow(warnings)]\n", &library, SWITCH].concat())
            .unwrap();
        let tests = compile(root.path(), &from.join("target/guards"));
        Self { root, tests, guards }
    }

    /// The first of these tests that fails without a guard, or that they do not end.
    pub(super) fn failed_test(&self, tests: &str, guard: Option<usize>) -> Option<String> {
        let output = self.root.path().join(format!("output-{guard:?}"));
        let mut running = Command::new(&self.tests)
            .arg(tests)
            .current_dir(self.root.path().join("idempotent-core"))
            .env("REMOVED_GUARD", guard.map_or_else(String::new, |guard| guard.to_string()))
            // A failure is found in a moment, but its smallest history only after minutes.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .stdout(fs::File::create(&output).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let Some(passed) = wait(&mut running) else {
            return Some("that the tests end".to_owned());
        };
        let output = fs::read_to_string(output).unwrap();
        let failed = output
            .lines()
            .find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
            .map(str::to_owned);
        assert_eq!(passed, failed.is_none(), "{output}");
        assert!(output.contains("running") && !output.contains("running 0"), "{output}");
        failed
    }
}

/// Compiles the unit tests, and returns the path of the program.
fn compile(root: &Path, target: &Path) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["test", "--offline", "-p", "idempotent-core", "--lib", "--no-default-features"])
        .args(["--features", "memory,conformance", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let output = String::from_utf8_lossy(&built.stdout);
    let program = output.lines().find_map(|line| {
        let message: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).ok()?;
        Some(message.get("executable")?.as_str()?.into())
    });
    program.unwrap()
}

/// Whether the tests have passed; `None` if they have not ended in time.
fn wait(tests: &mut Child) -> Option<bool> {
    let started = Instant::now();
    loop {
        match tests.try_wait().unwrap() {
            Some(status) => return Some(status.success()),
            None if started.elapsed() > TIME_LIMIT => {
                tests.kill().unwrap();
                tests.wait().unwrap();
                return None;
            }
            None => sleep(Duration::from_millis(2)),
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
