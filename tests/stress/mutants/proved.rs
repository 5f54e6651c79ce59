//! What was proved before. Mutants take minutes, so they are tried again only if a source has
//! changed on which their verdict depends; `tests/run mutants` tries all of them and records it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use sha2::{Digest as _, Sha256};

use super::folder;

/// One line for each group of mutants.
const RESULTS: &str = "tests/stress/MUTANTS.md";
/// What the verdict on every mutant depends on: the state machine, the suite and the detectors.
const COMMON: [&str; 4] =
    ["idempotent-core/src", "tests/stress/mutants", "tests/stress/hammer", "tests/support/src"];

/// A group of mutants, and the sources of their verdicts.
pub(super) struct Group {
    name: &'static str,
    digest: String,
}

impl Group {
    /// `sources` are the folders of the store.
    pub(super) fn new(name: &'static str, sources: &[&str]) -> Self {
        let mut hasher = Sha256::new();
        for folder_name in COMMON.iter().chain(sources) {
            for file in files(&folder(folder_name)) {
                let text = fs::read(&file).unwrap();
                hasher.update(file.strip_prefix(folder("")).unwrap().to_str().unwrap());
                hasher.update(text.len().to_be_bytes());
                hasher.update(text);
            }
        }
        let digest = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name, digest }
    }

    /// Whether all mutants were detected with the same sources, and need not be tried again.
    pub(super) fn is_proved(&self) -> bool {
        let proved = !is_recording()
            && lines().iter().any(|line| *line == self.line(line.split('|').nth(2).unwrap_or("")));
        if proved {
            println!("{}: proved with the same sources; see {RESULTS}", self.name);
        }
        proved
    }

    /// Records that all mutants were detected, if `tests/run mutants` asks for it.
    pub(super) fn record(&self, mutants: usize) {
        static FILE: Mutex<()> = Mutex::new(());
        if !is_recording() {
            println!("{}: proved; `tests/run mutants` records it", self.name);
            return;
        }
        let _locked = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = lines();
        let begin = format!("| {} |", self.name);
        let own = lines.iter().position(|line| line.starts_with(&begin)).expect("the group's line");
        lines[own] = self.line(&format!(" {mutants} "));
        fs::write(folder(RESULTS), lines.join("\n") + "\n").unwrap();
    }

    fn line(&self, mutants: &str) -> String {
        format!("| {} |{mutants}| `{}` |", self.name, self.digest)
    }
}

fn is_recording() -> bool {
    env::var_os("RECORD_MUTANTS").is_some()
}

fn lines() -> Vec<String> {
    fs::read_to_string(folder(RESULTS)).unwrap().lines().map(str::to_owned).collect()
}

/// The files below a folder, in order.
fn files(below: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
        .into_iter()
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}
