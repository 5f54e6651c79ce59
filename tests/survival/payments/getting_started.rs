//! The commands in the guide "Getting started" print what the guide shows.

use std::process::Command;

use crate::payments::server::{Files, Payments};

/// A command of a `console` block, and its expected output, in which `…` stands for any text.
struct ShownCommand {
    command: String,
    output: Vec<String>,
}

fn shown_commands(guide: &str) -> Vec<ShownCommand> {
    let mut all: Vec<ShownCommand> = Vec::new();
    let blocks =
        guide.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => {
                all.push(ShownCommand { command: command.to_owned(), output: Vec::new() })
            }
            (None, Some(last)) if last.command.ends_with('\\') => {
                last.command = format!("{}\n{line}", last.command)
            }
            (None, Some(last)) if !line.is_empty() => last.output.push(line.to_owned()),
            (None, _) => {}
        }
    }
    all
}

#[test]
fn the_commands_of_getting_started_print_what_the_guide_shows() {
    let guide = include_str!("../../../idempotent-actix/src/guide/getting_started.md");
    let files = Files::new();
    let server = Payments::start(&files);
    let shown = shown_commands(guide);
    assert_eq!(shown.len(), 4, "the commands are: first request, retry, other payload, conflict");
    for ShownCommand { command, output } in shown {
        assert!(command.contains("localhost:8080") && !output.is_empty(), "{command}");
        let command = command.replace("localhost:8080", &server.address.to_string());
        let printed = Command::new("sh").args(["-c", &command]).output().expect("sh runs");
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(!printed.is_empty(), "no output; is `curl` installed?");
        assert_prints(&command, &printed, output.iter().map(String::as_str));
    }
}

/// Asserts that a command printed these lines in this order. `…` and the space between lines stand
/// for any text.
pub(crate) fn assert_prints<'a>(
    command: &str,
    printed: &str,
    lines: impl Iterator<Item = &'a str>,
) {
    let mut rest = printed;
    for part in lines.flat_map(|line| line.split('…')) {
        let found = rest.find(part);
        let found = found.unwrap_or_else(|| {
            panic!("{command}\nprinted\n{printed}\nwhich lacks {part:?} at this point")
        });
        rest = &rest[found + part.len()..];
    }
}
