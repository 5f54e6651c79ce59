//! The keys that sign the principals of records.

use std::env;

use idempotent_core::FingerprintKeys;

use super::read;
use crate::{args::PrincipalArguments, failure::Failure};

const VARIABLE: &str = "IDEMPOTENCY_FINGERPRINT_KEYS";

/// The application's fingerprint keys, from a file or from the environment. None by default.
pub(crate) fn fingerprint_keys(arguments: &PrincipalArguments) -> Result<FingerprintKeys, Failure> {
    match &arguments.fingerprint_keys_file {
        Some(file) => parse(&read(file)?),
        None => {
            env::var(VARIABLE).map_or_else(|_| Ok(FingerprintKeys::none()), |text| parse(&text))
        }
    }
}

/// Reads a line for each key: its id, a colon, and the secret, or `hex:` and its digits.
fn parse(text: &str) -> Result<FingerprintKeys, Failure> {
    let mut keys = FingerprintKeys::none();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (id, secret) = line.split_once(':').ok_or_else(not_a_key)?;
        let id = id.trim().parse().map_err(|_| not_a_key())?;
        let secret = match secret.strip_prefix("hex:") {
            Some(digits) => bytes(digits.trim()).ok_or_else(not_a_key)?,
            None => secret.as_bytes().to_vec(),
        };
        // A principal is looked for by all keys, so none has to sign.
        keys = keys.recognizing(id, &secret).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    Ok(keys)
}

/// The bytes that pairs of hexadecimal digits stand for.
pub(super) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let pair = |pair: &[u8; 2]| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? * 16 + low?).ok()
    };
    if rest.is_empty() { pairs.iter().map(pair).collect() } else { None }
}

fn not_a_key() -> Failure {
    Failure::Usage("a fingerprint key is a line ID:SECRET or ID:hex:DIGITS".into())
}

#[cfg(test)]
mod tests {
    use idempotent_core::ScopeId;

    use super::*;

    #[test]
    fn a_secret_is_text_or_digits() {
        let principal = ScopeId::new("alice").principal();
        let expected = FingerprintKeys::none().with(7, b"0123456789abcdef").unwrap();
        let expected = expected.all_signed(principal);
        for text in ["7:0123456789abcdef\n", "\n 7:hex:30313233343536373839616263646566 \n"] {
            assert_eq!(parse(text).unwrap().all_signed(principal), expected, "{text}");
        }
        let two = parse("1:0123456789abcdef\n2:fedcba9876543210").unwrap();
        assert_eq!(two.all_signed(principal).len(), 3);
        for wrong in ["0123456789abcdef", "x:0123456789abcdef", "1:hex:0", "1:hex:zz", "1:short"] {
            let message = parse(wrong).unwrap_err().text();
            assert!(!message.contains("0123456789abcdef"), "{message}");
        }
    }
}
