//! The size of files and the width of lines.

use std::{fs, path::PathBuf};

use crate::root;

/// Files that are generated, whose size and width follow from their sources.
const GENERATED: &[&str] = &["docs/messages.md", "idempotent-actix/src/guide/pictures.md"];

const LENGTH: usize = 400;
const WIDTH: usize = 100;

const EXTENSIONS: [&str; 4] = ["rs", "md", "sql", "lua"];

/// Folders that are not looked into: what is built, what is generated, and a workspace of its own.
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

/// The source files of a folder and of those in it.
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

/// Whether a line is wide for a reason: a row of a table, a URL, or one word that cannot be split.
fn is_excepted(line: &str) -> bool {
    let begin = line.trim_start_matches(['/', '!', ' ']);
    let word = line.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    begin.starts_with('|') || line.contains("://") || word > WIDTH / 2
}

#[test]
fn files_have_at_most_400_lines() {
    let files = files();
    let files = files.iter().filter(|(path, _)| !GENERATED.contains(&path.as_str()));
    let long = files.filter(|(_, text)| text.lines().count() > LENGTH);
    let long: Vec<_> = long.map(|(path, _)| path).collect();
    assert!(long.is_empty(), "longer than {LENGTH} lines: {long:#?}");
}

#[test]
fn lines_have_at_most_100_columns() {
    let mut wide = Vec::new();
    for (path, text) in &files() {
        if GENERATED.contains(&path.as_str()) {
            continue;
        }
        for (line, number) in text.lines().zip(1..) {
            if line.chars().count() > WIDTH && !is_excepted(line) {
                wide.push(format!("{path}:{number}"));
            }
        }
    }
    assert!(wide.is_empty(), "these lines have more than {WIDTH} columns: {wide:#?}");
}
