//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

mod decision;
mod duration;
mod keyring;
mod selection;

pub(crate) use self::{
    decision::{DecisionArguments, ResponseArguments},
    keyring::KeyringArguments,
    selection::{PrincipalArguments, ScopeArguments, SelectionArguments},
};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 error, 2 usage, 3 not found, 4 conflict (the \
    record is in another state, or another attempt has it), 5 ambiguous.

The URL of the store comes from the variable IDEMPOTENCY_URL or from --url-file, so that a \
    password in it is not seen in the list of processes: sqlite:FILE, \
    postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, redis://HOST, redis+sentinel://…, \
    redis+cluster://…, with TLS rediss://…, dynamodb://REGION/TABLE.";

/// List, find, explain, resolve and erase the records of idempotency keys.
#[derive(Debug, Parser)]
#[command(name = "idempotency", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which store, and how long to wait for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct ConnectionArguments {
    /// The URL of the store, if it has no password. Otherwise use IDEMPOTENCY_URL or --url-file
    #[arg(long, global = true, value_name = "URL", conflicts_with = "url_file")]
    pub(crate) url: Option<String>,
    /// A file with the URL of the store
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// The name of the table, if the application has set one (SQLite, Postgres, MySQL)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// The schema of the table, if the application has set one (Postgres)
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// The prefix of the keys, if the application has set one (Redis, DynamoDB)
    #[arg(long, global = true, value_name = "PREFIX")]
    pub(crate) key_prefix: Option<String>,
    /// The time limit of each call to the store, such as 10s or 2m
    #[arg(long, global = true, value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = duration::parse)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) keyring: KeyringArguments,
}

/// How results are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Write the result, or the error, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Store(Box<StoreCommand>),
    /// Write completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man page, or the pages of all commands into a folder
    Man {
        /// The folder
        folder: Option<PathBuf>,
    },
}

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// List records that may need somebody: held ones, and those in flight
    List(ListArguments),
    /// Show one record
    Show(ShowArguments),
    /// Tell the story of one key, in English
    Explain(SelectionArguments),
    /// Complete a held operation that took effect: its clients get this response
    Resolve(ResolveArguments),
    /// Release a held key whose operation did not take effect: the next request runs it
    Release(DecidedRecord),
    /// Remove a completed record, so that its key is free again
    Forget(DecidedRecord),
    /// Remove all records of one principal
    Erase(EraseArguments),
    /// Remove expired records
    Purge,
    /// Seal what is not sealed, or is sealed with an older key of the keyring
    Reseal(ResealArguments),
    /// Count the records
    Stats,
    /// Create or upgrade the schema of the store
    Migrate(MigrateArguments),
    /// Check the store: settings, schema, privileges, sizes and clock
    Doctor,
    /// List the decisions of operators, the latest first
    Log(LogArguments),
}

/// A state by which records are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListedStateArgument {
    /// An attempt is in flight, or was abandoned so that the next request runs it again
    InFlight,
    /// The outcome is unknown
    Held,
    /// The operation is completed; reads the whole store
    Completed,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only records in this state
    #[arg(long)]
    pub(crate) state: Option<ListedStateArgument>,
    /// All records: reads the whole store, as --state completed and --scope do
    #[arg(long)]
    pub(crate) all: bool,
    /// Only records of this operation, such as "POST /v1/payments"
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,
    /// Only records with this reference
    #[arg(long, value_name = "TEXT")]
    pub(crate) reference: Option<String>,
    /// Only records that were first claimed at least this long ago, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) older_than: Option<Duration>,
    #[command(flatten)]
    pub(crate) whose: ScopeArguments,
    #[command(flatten)]
    pub(crate) principal: PrincipalArguments,
    /// The maximum number of records
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Where to go on: the position that the last page has named
    #[arg(long, value_name = "POSITION")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
    /// Show the body of the recorded response too
    #[arg(long)]
    pub(crate) body: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DecidedRecord {
    #[command(flatten)]
    pub(crate) selection: SelectionArguments,
    #[command(flatten)]
    pub(crate) decision: DecisionArguments,
    /// The attempt that was shown as "seen": another one is a conflict
    #[arg(long, value_name = "DIGITS")]
    pub(crate) seen: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArguments {
    #[command(flatten)]
    pub(crate) record: DecidedRecord,
    #[command(flatten)]
    pub(crate) response: ResponseArguments,
    /// Store the response as it is, although the application seals what it stores
    #[arg(long)]
    pub(crate) unsealed: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("principal").required(true).args(["scope", "scope_file"]))]
pub(crate) struct EraseArguments {
    #[command(flatten)]
    pub(crate) whose: ScopeArguments,
    #[command(flatten)]
    pub(crate) principal: PrincipalArguments,
    /// Remove records that are held or in flight too: their operations may run again
    #[arg(long)]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) decision: DecisionArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ResealArguments {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// The number of hash partitions of a new table (Postgres)
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partitions: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// Only decisions about the record whose id begins with these digits
    #[arg(long, value_name = "DIGITS")]
    pub(crate) id: Option<String>,
    /// The maximum number of entries that are read
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Where to go on: the position that the last page has named
    #[arg(long, value_name = "POSITION")]
    pub(crate) after: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
