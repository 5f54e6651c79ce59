//! The keys that seal what the store keeps.

use std::env;

use idempotent_core::Keyring;

use super::{keys::bytes, read};
use crate::{args::KeyringArguments, failure::Failure};

const VARIABLE: &str = "IDEMPOTENCY_KEYRING";

/// The application's keyring with the id of the key that seals, from a file or from the
/// environment. `None` by default.
pub(super) fn of(arguments: &KeyringArguments) -> Result<Option<(u32, Keyring)>, Failure> {
    let text = match &arguments.keyring_file {
        Some(file) => Some(read(file)?),
        None => env::var(VARIABLE).ok(),
    };
    match (text, arguments.seal_with) {
        (Some(text), seal_with) => parse(&text, seal_with).map(Some),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Failure::Usage(format!(
            "--seal-with names a key of a keyring: set {VARIABLE}, or use --keyring-file"
        ))),
    }
}

/// Reads a line for each key: its id, `hex:`, and its digits. The key that is named seals, or else
/// the first one.
fn parse(text: &str, seal_with: Option<u32>) -> Result<(u32, Keyring), Failure> {
    let mut keys = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (id, digits) = line.split_once(":hex:").ok_or_else(not_a_key)?;
        let id: u32 = id.trim().parse().map_err(|_| not_a_key())?;
        keys.push((id, bytes(digits.trim()).ok_or_else(not_a_key)?));
    }
    let sealing = seal_with.or_else(|| keys.first().map(|(id, _)| *id)).ok_or_else(not_a_key)?;
    if !keys.iter().any(|(id, _)| *id == sealing) {
        return Err(Failure::Usage(format!("the keyring has no key with the id {sealing}")));
    }
    let mut keyring = Keyring::none();
    for (id, key) in &keys {
        let added = if *id == sealing { keyring.with(*id, key) } else { keyring.opening(*id, key) };
        keyring = added.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok((sealing, keyring))
}

fn not_a_key() -> Failure {
    Failure::Usage("a key of a keyring is a line ID:hex:DIGITS, with 64 digits".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: u32) -> String {
        format!("{id}:hex:{}\n", format!("{id:02x}").repeat(32))
    }

    #[test]
    fn the_first_key_seals_or_the_one_that_is_named() {
        let text = format!("\n {}{}", line(2), line(1));
        assert_eq!(parse(&text, None).unwrap().0, 2);
        let (sealing, keyring) = parse(&text, Some(1)).unwrap();
        assert_eq!((sealing, format!("{keyring:?}").as_str()), (1, "[2, 1]"));
        let error = parse(&text, Some(3)).unwrap_err().text();
        assert!(error.contains("no key with the id 3"), "{error}");
    }

    #[test]
    fn what_is_no_keyring_is_refused_without_its_digits() {
        let twice = line(171).repeat(2);
        for wrong in
            ["", "\n", "7:abababababababababababababababab", "x:hex:abab", "1:hex:ab", &twice]
        {
            let message = parse(wrong, None).unwrap_err().text();
            assert!(message.contains("key") && !message.contains("abab"), "{message}");
        }
    }
}
