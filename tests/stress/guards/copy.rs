//! A copy of a crate in which each guard can be removed, and its unit tests.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    Source,
    switches::{Guard, SWITCH, add_switches},
};
use crate::mutants::folder;

/// The tests end within seconds, also on a busy machine. Without some guards a list has no end.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The packages of this workspace that only other tests of a crate need.
const OTHER_PACKAGES: [&str; 3] = ["idempotent-http", "idempotent-redis", "test-support"];

/// The unit tests of a crate, compiled with a switch for each guard.
pub(super) struct Copy {
    root: tempfile::TempDir,
    folder: &'static str,
    tests: PathBuf,
    pub(super) guards: Vec<Guard>,
}

impl Copy {
    /// Copies a crate and the core into a workspace of their own, and compiles the crate's unit
    /// tests.
    pub(super) fn new(of: &Source) -> Self {
        let (root, from) = (tempfile::tempdir().unwrap(), folder("."));
        let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
        let (before, after) = manifest.split_once("members = [").unwrap();
        let (_, after) = after.split_once(']').unwrap();
        let mut members = vec!["idempotent-core", of.folder];
        members.dedup();
        let manifest = format!("{before}members = {members:?}{after}");
        fs::write(root.path().join("Cargo.toml"), manifest).unwrap();
        fs::copy(from.join("Cargo.lock"), root.path().join("Cargo.lock")).unwrap();
        for member in members {
            copy_all(&from.join(member), &root.path().join(member));
        }
        let manifest = root.path().join(of.folder).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        fs::write(manifest, without_other_packages(&text)).unwrap();
        let source = root.path().join(of.folder).join("src");
        let mut guards = Vec::new();
        for file in of.files {
            let text = fs::read_to_string(source.join(file)).unwrap();
            fs::write(source.join(file), add_switches(file, &text, &mut guards)).unwrap();
        }
        let library = fs::read_to_string(source.join("lib.rs")).unwrap();
        fs::write(source.join("lib.rs"), ["#![allow(warnings)]\n", &library, SWITCH].concat())
            .unwrap();
        let tests = compile(of, root.path(), &from.join("target/guards"));
        Self { root, folder: of.folder, tests, guards }
    }

    /// The first of these tests that fails without a guard, or that they do not end.
    pub(super) fn failed_test(&self, tests: &str, guard: Option<usize>) -> Option<String> {
        let output = self.root.path().join(format!("output-{guard:?}"));
        let mut running = Command::new(&self.tests)
            .arg(tests)
            .current_dir(self.root.path().join(self.folder))
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

/// The manifest without the dependencies of other tests.
fn without_other_packages(manifest: &str) -> String {
    let (before, after) = manifest.split_once("[dev-dependencies]\n").unwrap();
    let is_other = |line: &&str| OTHER_PACKAGES.iter().any(|name| line.starts_with(name));
    let kept: Vec<_> = after.lines().filter(|line| !is_other(line)).collect();
    format!("{before}[dev-dependencies]\n{}", kept.join("\n"))
}

/// Compiles the unit tests, and returns the path of the program.
fn compile(of: &Source, root: &Path, target: &Path) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["test", "--offline", "-p", of.package, "--lib", "--no-default-features"])
        .args(["--features", of.features, "--no-run"])
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
