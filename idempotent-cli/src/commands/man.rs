//! Man pages.

use std::{fs, path::Path};

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::{args::Arguments, failure::Failure, report::Report};

/// Writes the page of the program, or those of all commands into a folder.
pub(super) fn man(folder: Option<&Path>) -> Result<Report, Failure> {
    let mut program = Arguments::command();
    // Each command gets the options that all of them have, and its whole name.
    program.build();
    let Some(folder) = folder else { return Ok(Report::of_text(page(&program)?)) };
    let failed = |error: std::io::Error| {
        Failure::error(&format!("{} cannot be written", folder.display()), &error)
    };
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join("idempotency.1"), page(&program)?).map_err(failed)?;
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let file = folder.join(format!("idempotency-{}.1", command.get_name()));
        fs::write(file, page(command)?).map_err(failed)?;
    }
    Ok(Report::of_text(String::new()))
}

fn page(command: &clap::Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut page);
    rendered.map_err(|error| Failure::error("the man page cannot be rendered", &error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
