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
/// What the verdict on every mutant depends on: the state machine, the suite, the detectors with
/// all that they use, and the dependencies.
const COMMON: [&str; 4] =
    ["Cargo.lock", "idempotent-core/src", "tests/stress", "tests/support/src"];
/// With one of these variables the server is another one than that of the record, such as Valkey.
const OTHER_SERVER: [&str; 4] = ["ANOTHER_SERVER", "DATABASE_URL", "REDIS_URL", "MYSQL_URL"];

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
            let own = folder(RESULTS);
            for file in files(&folder(folder_name)).into_iter().filter(|file| *file != own) {
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
        let is_own = |line: &String| {
            line.starts_with(&format!("| {} |", self.name)) && line.contains(&self.digest)
        };
        let is_same = !OTHER_SERVER.iter().any(|name| env::var_os(name).is_some());
        let proved = !is_recording() && is_same && lines().iter().any(is_own);
        if proved {
            println!("{}: proved with the same sources; see {RESULTS}", self.name);
        }
        proved
    }

    /// Records that all mutants were detected, if `tests/run mutants` asks for it. The lines of
    /// other groups, some of which are not compiled, stay as they are.
    pub(super) fn record(&self, mutants: usize) {
        static FILE: Mutex<()> = Mutex::new(());
        if !is_recording() {
            println!("{}: proved; see {RESULTS} for how to record it", self.name);
            return;
        }
        let _locked = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = lines();
        let begin = format!("| {} |", self.name);
        let line = format!("{begin} {mutants} | `{}` |", self.digest);
        match lines.iter_mut().find(|line| line.starts_with(&begin)) {
            Some(own) => *own = line,
            None => lines.push(line),
        }
        fs::write(folder(RESULTS), lines.join("\n") + "\n").unwrap();
    }
}

fn is_recording() -> bool {
    env::var_os("RECORD_MUTANTS").is_some()
}

fn lines() -> Vec<String> {
    fs::read_to_string(folder(RESULTS)).unwrap().lines().map(str::to_owned).collect()
}

/// A file, or the files below a folder, in order.
fn files(below: &Path) -> Vec<PathBuf> {
    if below.is_file() {
        return vec![below.to_owned()];
    }
    let mut found: Vec<_> =
        fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found.iter().flat_map(|path| files(path)).collect()
}
