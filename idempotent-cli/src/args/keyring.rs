//! The keys that seal what the store keeps.

use std::path::PathBuf;

use clap::Args;

/// The keyring of the application.
#[derive(Debug, Args)]
pub(crate) struct KeyringArguments {
    /// A file with the application's keyring, which seals what is stored: a line ID:hex:DIGITS for
    /// each key. Also from IDEMPOTENCY_KEYRING
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) keyring_file: Option<PathBuf>,
    /// The id of the key that seals; by default that of the first key of the keyring
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) seal_with: Option<u32>,
}
