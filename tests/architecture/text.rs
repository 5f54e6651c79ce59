//! The size of files and the width of lines.

use std::{fs, path::PathBuf};

use crate::root;

/// Generated files, which may be longer and wider.
const GENERATED: &[&str] = &["idempotent-actix/src/guide/pictures.md"];

const MAX_LINES: usize = 400;
const MAX_COLUMNS: usize = 100;

const EXTENSIONS: [&str; 4] = ["rs", "md", "sql", "lua"];

/// Folders that are skipped: build output, generated files, and the separate workspace `peers`.
const SKIPPED: &[&str] = &["target", "node_modules", "peers", "results", "golden"];

/// Every source file of the workspace, with its path from the root.
pub(crate) fn files() -> Vec<(String, String)> {
    let paths = files_in("").into_iter();
    let mut files: Vec<_> = paths
        .map(|path| {
            (
                path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned(),
                fs::read_to_string(path).unwrap(),
            )
        })
        .collect();
    files.sort();
    assert!(files.len() > 300, "only {} files were found", files.len());
    files
}

/// The source files of a folder and its subfolders.
pub(crate) fn files_in(folder: &str) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root().join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (name, path) =
                (entry.file_name().into_string().unwrap(), folder.join(entry.file_name()));
            if entry.file_type().unwrap().is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|is| EXTENSIONS.iter().any(|extension| is == *extension))
            {
                files.push(path);
            }
        }
    }
    files
}

/// Whether a line may be wider: a row of a table, a URL, or a word that cannot be split.
fn is_excepted(line: &str) -> bool {
    let begin = line.trim_start_matches(['/', '!', ' ']);
    let word = line.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    begin.starts_with('|') || line.contains("://") || word > MAX_COLUMNS / 2
}

#[test]
fn files_have_at_most_400_lines() {
    let files = files();
    let files = files.iter().filter(|(path, _)| !GENERATED.contains(&path.as_str()));
    let long = files.filter(|(_, text)| text.lines().count() > MAX_LINES);
    let long: Vec<_> = long.map(|(path, _)| path).collect();
    assert!(long.is_empty(), "longer than {MAX_LINES} lines: {long:#?}");
}

#[test]
fn lines_have_at_most_100_columns() {
    let mut wide = Vec::new();
    for (path, text) in &files() {
        if GENERATED.contains(&path.as_str()) {
            continue;
        }
        for (line, number) in text.lines().zip(1..) {
            if line.chars().count() > MAX_COLUMNS && !is_excepted(line) {
                wide.push(format!("{path}:{number}"));
            }
        }
    }
    assert!(wide.is_empty(), "these lines have more than {MAX_COLUMNS} columns: {wide:#?}");
}

/// A glob could make a name public that nobody has chosen.
#[test]
fn every_public_name_is_exported_by_name() {
    let files = files();
    let shipped = files.iter().filter(|(path, _)| {
        path.starts_with("idempotent-") && path.contains("/src/") && path.ends_with(".rs")
    });
    let mut exports = 0;
    for (path, text) in shipped {
        for after in text.split("pub use ").skip(1) {
            let export = after.split(';').next().unwrap();
            assert!(!export.contains('*'), "{path} re-exports `{export}`: name the items");
            exports += 1;
        }
    }
    assert!(exports > 20, "only {exports} re-exports were found");
}
