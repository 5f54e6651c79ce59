//! Which record, or whose records.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// The ways to name a record.
const WAYS: [&str; 4] = ["id", "reference", "key", "key_file"];

/// Which record: by its id, by its reference, or by the client's own key.
#[derive(Debug, Args)]
#[command(next_help_heading = "Record")]
#[command(group = ArgGroup::new("record").required(true).args(WAYS))]
#[group(skip)]
pub(crate) struct SelectionArguments {
    /// The id, or the digits of it that a log shows
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The reference that the handler has noted; reads the whole store
    #[arg(long, value_name = "TEXT")]
    pub(crate) reference: Option<String>,
    /// The client's key, with its operation, scope and namespace
    #[arg(long, requires_all = ["operation", "namespace", "whose"])]
    pub(crate) key: Option<String>,
    /// A file with the client's key, if it is a secret
    #[arg(long, value_name = "FILE", requires_all = ["operation", "namespace", "whose"])]
    pub(crate) key_file: Option<PathBuf>,
    /// The operation of the key: the attribute's `name`, or method and route: "POST /v1/payments"
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "reference"])]
    pub(crate) operation: Option<String>,
    /// The application's namespace: by default the name of the package with its handlers
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "reference"])]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) whose: ScopeArguments,
}

/// Whose key, or whose records.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").args(["scope", "scope_file"]))]
#[group(skip)]
pub(crate) struct ScopeArguments {
    /// The scope of a principal, such as user:alice, 42, or tenant:acme/user:alice
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// A file with the scope, if it is a secret, such as a bearer token
    #[arg(long, value_name = "FILE")]
    pub(crate) scope_file: Option<PathBuf>,
}

/// The keys that sign the principals of records.
#[derive(Debug, Args)]
pub(crate) struct PrincipalArguments {
    /// A file with the application's fingerprint keys, which sign the principals of records: a line
    /// ID:SECRET for each, or ID:hex:DIGITS. Also from IDEMPOTENCY_FINGERPRINT_KEYS
    #[arg(long, value_name = "FILE")]
    pub(crate) fingerprint_keys_file: Option<PathBuf>,
}
