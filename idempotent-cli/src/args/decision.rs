//! What a decision needs: who, why, and the response.

use std::path::PathBuf;

use clap::{ArgGroup, Args, builder::NonEmptyStringValueParser};

/// Who decides, and why.
#[derive(Debug, Args)]
#[command(next_help_heading = "Decision")]
pub(crate) struct DecisionArguments {
    /// Why; the store keeps it in its log
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
    /// Who decides; by default the name of the user
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) actor: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The response that clients get from now on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Response")]
#[command(group = ArgGroup::new("outcome").required(true).args(["status", "result"]))]
#[group(skip)]
pub(crate) struct ResponseArguments {
    /// The status
    #[arg(long, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: Option<u16>,
    /// The header Content-Type
    #[arg(long, value_name = "TYPE", requires = "status")]
    pub(crate) content_type: Option<String>,
    /// Another header line, such as "Location: /v1/refunds/7"; may be repeated
    #[arg(long = "header", value_name = "LINE", requires = "status")]
    pub(crate) headers: Vec<String>,
    /// The body
    #[arg(long, value_name = "TEXT", requires = "status")]
    pub(crate) body: Option<String>,
    /// A file with the body; - is the standard input
    #[arg(long, value_name = "FILE", requires = "status", conflicts_with = "body")]
    pub(crate) body_file: Option<PathBuf>,
    /// The result of a job, as JSON, instead of a response
    #[arg(long, value_name = "JSON")]
    pub(crate) result: Option<String>,
}
