//! The program, and what it writes.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The program with its arguments and its environment, which has no other variables.
pub(crate) struct Program {
    command: Command,
    input: String,
}

/// What the program has written, and its exit code.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Program {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idempotency"));
        command.args(arguments).env_clear().env("USER", "ada");
        // The emulator of DynamoDB accepts any credentials.
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        Self { command, input: String::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn with_input(mut self, input: &str) -> Self {
        self.input = input.to_owned();
        self
    }

    /// The program in a terminal, in which `input` is typed.
    pub(crate) fn in_a_terminal(self) -> Self {
        let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_str().unwrap());
        let program = [self.command.get_program()].into_iter().chain(self.command.get_args());
        let program: Vec<_> = program.map(quoted).collect();
        let mut command = Command::new("script");
        command.args(["-qec", &program.join(" "), "/dev/null"]);
        command
            .env("TERM", "xterm")
            .envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Self { command, ..self }
    }

    pub(crate) fn run(mut self) -> Written {
        let command = &mut self.command;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program (Debian: `bsdutils` has `script`)");
        // The program may end without having read it.
        let _ = child.stdin.take().unwrap().write_all(self.input.as_bytes());
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Written { code: status.code().unwrap(), out: text(stdout), error: text(stderr) }
    }

    /// The output of a run that succeeds.
    pub(crate) fn text(self) -> String {
        let written = self.run();
        assert_eq!(written.code, 0, "{written:?}");
        written.out
    }

    /// The JSON of a run that succeeds.
    pub(crate) fn json(mut self) -> Value {
        self.command.arg("--json");
        serde_json::from_str(&self.text()).unwrap()
    }

    /// The error of a run that fails with this exit code.
    pub(crate) fn fails(self, code: i32) -> String {
        let written = self.run();
        assert_eq!(written.code, code, "{written:?}");
        assert_eq!(written.out, "");
        written.error
    }
}
