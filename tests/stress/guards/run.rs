//! Runs the unit tests of the core on its source with one guard replaced.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::source::SourceMutant;
use crate::mutants::folder;

/// The tests end within seconds, also on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A copy of the core, as a workspace of its own.
pub(super) struct Copy {
    root: tempfile::TempDir,
    target: PathBuf,
}

impl Copy {
    pub(super) fn new() -> Self {
        let (root, from) = (tempfile::tempdir().unwrap(), folder("."));
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (before, after) = manifest.split_once("members = [").unwrap();
        let (_, after) = after.split_once(']').unwrap();
        let manifest = format!("{before}members = [\"idempotent-core\"]{after}");
        fs::write(root.path().join("Cargo.toml"), manifest).unwrap();
        fs::copy(from.join("Cargo.lock"), root.path().join("Cargo.lock")).unwrap();
        copy_all(&from.join("idempotent-core"), &root.path().join("idempotent-core"));
        Self { root, target: from.join("target/guards") }
    }

    /// The names of the tests that notice a mutant. Without a mutant there must be none.
    pub(super) fn failed_tests(&self, mutant: Option<&SourceMutant>) -> Vec<String> {
        let Some(mutant) = mutant else { return self.run_tests() };
        let file = self.root.path().join("idempotent-core/src").join(mutant.file);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen(mutant.guard, mutant.replacement, 1)).unwrap();
        let failed = self.run_tests();
        fs::write(&file, text).unwrap();
        failed
    }

    /// `cargo test` with these arguments.
    fn cargo_test(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["test", "--offline", "-p", "idempotent-core", "--lib", "--no-default-features"])
            .args(["--features", "memory"])
            .args(arguments)
            .current_dir(self.root.path())
            .env("CARGO_TARGET_DIR", &self.target)
            // A failure is found in a moment, but its smallest history only after minutes.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        command
    }

    fn run_tests(&self) -> Vec<String> {
        let built = self.cargo_test(&["--no-run"]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let output = self.root.path().join("output");
        let mut tests = self
            .cargo_test(&["--", "transition", "store::memory"])
            .stdout(fs::File::create(&output).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let passed = loop {
            match tests.try_wait().unwrap() {
                Some(status) => break status.success(),
                None if started.elapsed() > TIME_LIMIT => {
                    tests.kill().unwrap();
                    panic!("the tests do not end");
                }
                None => sleep(Duration::from_millis(20)),
            }
        };
        let output = fs::read_to_string(output).unwrap();
        let failed = output
            .lines()
            .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
            .map(str::to_owned)
            .collect::<Vec<_>>();
        assert_eq!(passed, failed.is_empty(), "the tests were not run: {output}");
        failed
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
