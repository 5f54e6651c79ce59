//! The tables of mutants are complete and up to date.

use super::{Mutant, detectors::DetectedBy, files, no_ops::NoOp, postgres, read, redis, sqlite};

const SQL: &[&str] = &["WHERE", "AND", "CASE"];
#[cfg(feature = "mysql")]
const MYSQL: &[&str] = &["WHERE", "AND", "CASE", "IF", "FOR"];
/// With what a script owes to histories, to the watch list and to the log.
const LUA: &[&str] = &[
    "and",
    "or",
    "not",
    "==",
    "~=",
    "<=",
    "<",
    ">",
    "append_history",
    "watch",
    "unwatch",
    "log_from",
];
/// Files with schema or settings, which are not steps of the protocol, and those that show people
/// counts and the log.
const NOT_STEPS: &[&str] = &[
    "audit.sql",
    "check.lua",
    "check.sql",
    "clock.sql",
    "connection.sql",
    "count.sql",
    "existing.sql",
    "index_input.lua",
    "list.lua",
    "measure.sql",
    "migrate_1.sql",
    "migrations.sql",
    "partition.sql",
    "privileges.sql",
    "read.sql",
    "room.sql",
    "server.sql",
    "table.sql",
    "watch.lua",
];

/// The guards, with their positions: each keyword outside of comments counts as one.
fn guards(text: &str, words: &[&str], comment: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split(comment).next().unwrap();
        let mut begin = 0;
        for word in code.split_inclusive([' ', '(', ')', '\n']) {
            if words.contains(&word.trim_end_matches([' ', '(', ')', '\n'])) {
                found.push((at + begin, line.trim().to_owned()));
            }
            begin += word.len();
        }
        at += line.len();
    }
    found
}

fn assert_complete(name: &str, mutants: &[Mutant], words: &[&str], comment: &str, at_least: usize) {
    let has_mutants = |file: &str| mutants.iter().any(|mutant| mutant.file == file);
    let is_step = |file: &String| !NOT_STEPS.contains(&file.as_str()) || has_mutants(file);
    let files: Vec<_> = files(name).into_iter().filter(is_step).collect();
    let (mut seen, mut without_mutant) = (0, Vec::new());
    for file in &files {
        let text = read(name, file);
        // A statement without a guard has no condition that could be changed.
        let has_guards = !guards(&text, words, comment).is_empty();
        for no_op in NoOp::ALL.into_iter().filter(|no_op| has_guards || *no_op != NoOp::Condition) {
            assert_ne!(no_op.alter(file, &text), text, "{no_op:?} changes nothing in {file}");
        }
        let of_file: Vec<_> = mutants.iter().filter(|mutant| mutant.file == file).collect();
        for mutant in &of_file {
            assert_eq!(text.matches(mutant.guard).count(), 1, "{} is out of date", mutant.name());
            assert_ne!(mutant.guard, mutant.replacement);
        }
        let spans: Vec<_> = of_file
            .iter()
            .map(|mutant| (text.find(mutant.guard).unwrap(), mutant.guard.len()))
            .collect();
        for (at, line) in guards(&text, words, comment) {
            seen += 1;
            if !spans.iter().any(|(begin, length)| (*begin..begin + length).contains(&at)) {
                without_mutant.push(format!("{file}, at {at}: {line}"));
            }
        }
    }
    for mutant in mutants {
        let DetectedBy::ProvedBy(proof) = mutant.detected_by else { continue };
        let notices = |other: &Mutant| other.file == mutant.file && other.detected_by == *proof;
        assert!(proof.is_exhaustive() && mutants.iter().any(notices), "{}", mutant.name());
    }
    assert!(without_mutant.is_empty(), "guards without a mutant: {without_mutant:#?}");
    let unknown = mutants.iter().find(|mutant| !files.iter().any(|file| file == mutant.file));
    assert!(unknown.is_none(), "there is no file {}", unknown.unwrap().file);
    println!("{name}: {seen} guards, {} mutants", mutants.len());
    assert!(seen >= at_least, "only {seen} guards were found");
}

#[test]
fn every_guard_of_the_sqlite_statements_has_a_mutant() {
    assert_complete("stores/sqlite/src/sql", sqlite::mutants(), SQL, "--", 40);
}

#[test]
fn every_guard_of_the_postgres_statements_has_a_mutant() {
    let mutants = [postgres::mutants(), postgres::batch_statements::MUTANTS].concat();
    assert_complete("stores/postgres/src/sql", &mutants, SQL, "--", 55);
}

#[test]
fn every_guard_of_the_redis_scripts_has_a_mutant() {
    assert_complete("stores/redis/src/lua", redis::MUTANTS, LUA, "--", 100);
}

#[cfg(feature = "mysql")]
#[test]
fn every_guard_of_the_mysql_statements_has_a_mutant() {
    use super::mysql;
    let mutants = [mysql::mutants(), mysql::batch_statements::MUTANTS].concat();
    assert_complete("stores/mysql/src/sql", &mutants, MYSQL, "--", 120);
}
