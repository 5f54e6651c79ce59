//! Where the URL of the store comes from.

use std::env;

use super::read;
use crate::{args::ConnectionArguments, failure::Failure};

const VARIABLE: &str = "IDEMPOTENCY_URL";

/// The URL of the store: from the command line, from a file, or from the environment.
pub(super) fn of(arguments: &ConnectionArguments) -> Result<String, Failure> {
    if let Some(url) = &arguments.url {
        return if has_password(url) {
            Err(Failure::Usage(format!(
                "a password on the command line is seen by every user of the machine: put the URL \
                 into the variable {VARIABLE}, or into a file for --url-file"
            )))
        } else {
            Ok(url.clone())
        };
    }
    if let Some(file) = &arguments.url_file {
        return Ok(read(file)?.trim().to_owned());
    }
    env::var(VARIABLE).map_err(|_| {
        Failure::Usage(format!("name the store: set {VARIABLE}, or use --url-file or --url"))
    })
}

/// Whether a URL has a password, or may have one.
fn has_password(url: &str) -> bool {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    !url.starts_with("sqlite:")
        && (user.is_some_and(|(user, _)| user.contains(':')) || url.contains("password="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognised() {
        for url in [
            "redis://:secret@h",
            "redis://u:se@cret@h",
            "postgres://u:secret@h/d",
            "postgres://h/d?user=u&password=secret",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["sqlite:a:b@c", "redis://h:6379", "postgres://u@h:5432/d", "redis+cluster://a:1,b:2"]
        {
            assert!(!has_password(url), "{url}");
        }
    }
}
