//! What a command has found, for programs and for people.

use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;

/// What a command has found.
#[derive(Debug)]
pub(crate) struct Report {
    /// For `--json`.
    pub(crate) json: Value,
    /// For people, with colours, which are left out unless it is written to a terminal.
    pub(crate) text: String,
    pub(crate) exit_code: u8,
}

impl Report {
    pub(crate) fn new(view: &impl Serialize, text: String) -> Result<Self, Failure> {
        let json = serde_json::to_value(view);
        let json = json.map_err(|error| Failure::error("the result is no JSON", &error))?;
        Ok(Self { json, text, exit_code: 0 })
    }

    /// What has another form than JSON, such as a man page.
    pub(crate) fn of_text(text: String) -> Self {
        Self { json: Value::String(text.clone()), text, exit_code: 0 }
    }

    pub(crate) fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }
}
