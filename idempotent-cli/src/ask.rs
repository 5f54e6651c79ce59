//! Confirmations, and the progress of long work.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Asks whether to go on, after it has shown what about. `--yes` answers for scripts.
///
/// # Errors
/// Fails if the input is no terminal, and if the answer is not yes.
pub(crate) fn confirm(what: &str, question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let message = "this needs a confirmation, and the input is no terminal; add `--yes`";
        return Err(Failure::Usage(message.into()));
    }
    let mut answer = String::new();
    let asked = write!(anstream::stderr(), "{what}{question} [y/N] ");
    let asked = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    asked.map_err(|error| Failure::error("the question cannot be asked", &error))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Error("nothing was changed, because it was not confirmed".into())),
    }
}

/// The progress of work of a known length, on the standard error. It is shown only on a terminal.
pub(crate) fn progress(what: &'static str, length: u64) -> ProgressBar {
    let template = "{msg} {wide_bar} {human_pos}/{human_len}";
    styled(ProgressBar::new(length), what, template)
}

/// The progress of work whose length is not known.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    styled(ProgressBar::new_spinner(), what, "{spinner} {msg} {human_pos}")
}

fn styled(bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let bar = match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    let bar = bar.with_message(what);
    // The thread that draws later may not run before the work has ended.
    bar.tick();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
