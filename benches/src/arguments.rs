//! The words after the program's name: a command, then `--name value` pairs.

use std::{fmt::Debug, str::FromStr, time::Duration};

/// What is said without a value.
const SWITCHES: [&str; 3] = ["quick", "seeded", "awake"];

/// A command and its options.
pub(crate) struct Arguments {
    command: String,
    options: Vec<(String, String)>,
}

impl Arguments {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        // Cargo says `--bench` to every benchmark.
        Self::parse(std::env::args().skip(1).filter(|word| word != "--bench"))
    }

    fn parse(words: impl Iterator<Item = String>) -> Self {
        let (mut command, mut options) = (None, Vec::new());
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                assert!(command.is_none(), "one command is enough; `{word}` is another");
                command = Some(word);
                continue;
            };
            let value = if SWITCHES.contains(&name) { Some(String::new()) } else { words.next() };
            options.push((name.to_owned(), value.unwrap_or_else(|| panic!("`--{name}` needs a value"))));
        }
        Self { command: command.unwrap_or_else(|| "table".into()), options }
    }

    /// The first word; `table` where there is none.
    pub(crate) fn command(&self) -> &str {
        &self.command
    }

    /// Whether a switch is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Every value of an option.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |(option, _)| option == name).map(|(_, value)| value.as_str())
    }

    /// The value of an option.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    /// A number, or what it is by default.
    pub(crate) fn number<T: FromStr<Err: Debug>>(&self, name: &str, default: T) -> T {
        self.text(name).map_or(default, |value| {
            value.parse().unwrap_or_else(|error| panic!("`--{name} {value}` is no number: {error:?}"))
        })
    }

    /// A number of seconds.
    pub(crate) fn seconds(&self, name: &str, default: f64) -> Duration {
        Duration::from_secs_f64(self.number(name, default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Arguments {
        Arguments::parse(words.split(' ').map(String::from))
    }

    #[test]
    fn options_may_stand_on_either_side_of_the_command() {
        let arguments = parse("--runs 3 growth --quick --only a --only b");
        assert_eq!(arguments.command(), "growth");
        assert_eq!(arguments.number("runs", 5), 3);
        assert_eq!(arguments.number("connections", 64), 64);
        assert!(arguments.has("quick") && !arguments.has("seeded"));
        assert_eq!(arguments.all("only").collect::<Vec<_>>(), ["a", "b"]);
    }
}
