//! `docs/guards.md` lists every guard, and what notices that it is missing.
//!
//! `UPDATE=1 cargo test -p tests --test stress guards` removes each guard of the state machine and
//! of the memory store, one at a time, runs the unit tests of the core, and rewrites the file. The
//! other lists are those of the [mutants](super::mutants) and of the [model](super::model).

use std::{collections::BTreeMap, env, fmt::Write as _, fs};

use self::source::{FILES, MUTANTS, SourceMutant, TESTS};
use super::{
    model,
    mutants::{self, folder},
};

mod run;
mod source;

/// What looks like a guard.
const GUARDS: [&str; 11] =
    [" if ", " && ", " || ", " == ", " != ", " <= ", " >= ", " > ", ".filter(", ".or(", ".min("];
/// Lines that decide nothing about a record.
const NOT_GUARDS: [&str; 3] = ["Entry::Occupied", "used.get().records == 0", "inputs.load("];

fn read(file: &str) -> String {
    fs::read_to_string(folder("idempotent-core/src").join(file)).unwrap()
}

/// The code of a file, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    code.filter(|line| !line.is_empty())
}

/// A number that changes with the sources or the tests on which the results depend (FNV-1a).
fn hash() -> String {
    let texts = FILES.iter().chain(&TESTS).map(|file| read(file)).collect::<Vec<_>>();
    let bytes = texts.iter().flat_map(|text| code(text)).flat_map(str::bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn every_guard_of_the_state_machine_has_a_mutant() {
    let (mut guards, mut without_mutant) = (0, Vec::new());
    for file in FILES {
        let text = read(file);
        let of_file: Vec<_> = MUTANTS.iter().filter(|mutant| mutant.file == file).collect();
        for mutant in &of_file {
            assert_eq!(text.matches(mutant.guard).count(), 1, "{file}: {:?}", mutant.guard);
        }
        let spans: Vec<_> = of_file
            .iter()
            .map(|mutant| (text.find(mutant.guard).unwrap(), mutant.guard.len()))
            .collect();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let code = line.split("//").next().unwrap();
            for guard in GUARDS.iter().flat_map(|guard| code.match_indices(guard)) {
                let position = at + guard.0 + 1;
                let covered =
                    spans.iter().any(|(from, length)| (*from..from + length).contains(&position));
                let is_guard = !NOT_GUARDS.iter().any(|other| line.contains(other));
                if !covered && is_guard {
                    without_mutant.push(format!("{file}: {:?} in {}", guard.1, line.trim()));
                }
                guards += 1;
            }
            at += line.len();
        }
    }
    assert!(without_mutant.is_empty(), "guards without a mutant: {without_mutant:#?}");
    println!("{guards} guards, {} mutants", MUTANTS.len());
    assert!(guards >= 50, "only {guards} guards were found");
}

/// A row of the file, up to the name of what notices.
fn row(file: &str, guard: &str, replacement: &str) -> String {
    let text = |text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        if text.is_empty() { "–".to_owned() } else { format!("`{text}`") }
    };
    format!("| {file} | {} | {} | ", text(guard), text(replacement))
}

fn source_row(mutant: &SourceMutant) -> String {
    row(mutant.file, mutant.guard, mutant.replacement)
}

/// The tests that notice each mutant.
fn results() -> BTreeMap<String, String> {
    let copy = run::Copy::new();
    assert!(copy.failed_tests(None).is_empty(), "a test fails without a mutant");
    let result = |mutant| {
        let mut failed = copy.failed_tests(Some(mutant));
        // The random histories may miss a mutant in another run.
        failed.sort_by_key(|test| (test.contains("histories"), !test.contains("table")));
        let noticed = failed.first().map_or_else(String::new, |test| format!("`{test}`"));
        println!("{}{noticed}", source_row(mutant));
        (source_row(mutant), noticed)
    };
    MUTANTS.iter().map(result).collect()
}

/// The results in the file, if they are those of the current sources.
fn known_results(list: &str) -> Option<BTreeMap<String, String>> {
    if !list.contains(&hash()) {
        return None;
    }
    let rows = MUTANTS.iter().map(|mutant| {
        let row = source_row(mutant);
        let noticed = list.lines().find_map(|line| line.strip_prefix(&row)?.strip_suffix(" |"))?;
        Some((row, noticed.to_owned()))
    });
    rows.collect()
}

fn render(results: &BTreeMap<String, String>) -> String {
    let mut list = format!(
        "# Guards\n\nEvery guard of the state machine, of the statements and of the scripts, and \
         what notices that it is\nmissing. A guard is replaced by the text in the third column; \
         `–` stands for nothing.\n\n`UPDATE=1 cargo test -p tests --test stress guards` rewrites \
         this file; a test keeps it up to date.\n\n## The state machine and the memory \
         store\n\nUnit tests of `idempotent-core` notice. The results are those of the sources \
         with the hash\n`{}`.\n\n| file | guard | replaced by | noticed by |\n|---|---|---|---|\n",
        hash()
    );
    for mutant in MUTANTS {
        let row = source_row(mutant);
        writeln!(list, "{row}{} |", results[&row]).unwrap();
    }
    list.push_str(
        "\n## Rules in the model\n\nThe model checker reports the property that is broken, or \
         what no state shows.\n\n| rules | noticed by |\n|---|---|\n",
    );
    for (rules, noticed) in model::mutants() {
        writeln!(list, "| {rules} | {noticed} |").unwrap();
    }
    for (title, mutants) in mutants::tables() {
        writeln!(list, "\n## {title}\n\n| file | guard | replaced by | noticed by |").unwrap();
        list.push_str("|---|---|---|---|\n");
        for (file, guard, replacement, noticed) in mutants {
            writeln!(list, "{}{noticed} |", row(file, guard, replacement)).unwrap();
        }
    }
    list
}

#[test]
fn the_list_of_guards_is_up_to_date() {
    let path = folder("docs/guards.md");
    let known = fs::read_to_string(&path).unwrap_or_default();
    let current = known_results(&known);
    let update = env::var_os("UPDATE").is_some();
    let results = if update { current.or_else(|| Some(results())) } else { current };
    let list = results.map(|results| {
        let missed: Vec<_> =
            results.iter().filter(|(_, by)| by.is_empty()).map(|(row, _)| row).collect();
        assert!(missed.is_empty(), "nothing notices {missed:#?}");
        render(&results)
    });
    if update {
        fs::write(&path, list.as_deref().unwrap_or_default()).unwrap();
    }
    assert!(
        update || list.is_some_and(|list| list == known),
        "{} is out of date: run `UPDATE=1 cargo test -p tests --test stress guards` and read the \
         change",
        path.display(),
    );
}
