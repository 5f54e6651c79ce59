//! The command line: a command, which is `table` by default, and its options.

use clap::{Args, Parser, Subcommand};

use crate::{
    compile, growth, load::Plan, neighbors, open_loop, purge, records, scale, serve, soak, table,
};

/// Compares the layer with the least that the same work can cost
#[derive(Parser)]
#[command(name = "benches", args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    table: table::Options,
    /// Cargo passes this to every benchmark
    #[arg(long = "bench", hide = true, global = true)]
    _bench: bool,
}

/// What to measure
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Throughput, latency and cost of each row, with a plot; the default
    Table(table::Options),
    /// How cost grows with response size and connections, and the bytes of a record
    Growth(growth::Options),
    /// Latency against offered load, with a fixed rate of arrivals
    OpenLoop(open_loop::Options),
    /// Several processes on one store, and a hot key
    Scale(scale::Options),
    /// Claims, replays and purges in a Postgres table with many millions of records
    Records(records::Options),
    /// What slow rows and a dead connection cost the requests with other keys
    Neighbors(neighbors::Options),
    /// Purging under load
    Purge(purge::Options),
    /// Compile times
    Compile(compile::Options),
    /// Whether memory, records and connections grow during minutes of load
    Soak(soak::Options),
    /// Runs a server under test
    #[command(hide = true)]
    Serve(serve::Options),
    /// Runs a load and prints its sample
    #[command(hide = true)]
    Load(LoadOptions),
}

/// The options of `load`
#[derive(Args)]
pub(crate) struct LoadOptions {
    /// The plan, as JSON
    #[arg(value_parser = |text: &str| serde_json::from_str::<Plan>(text))]
    pub(crate) plan: Plan,
}

impl Arguments {
    pub(crate) fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Table(self.table))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(words: &str) -> Command {
        Arguments::parse_from(["benches"].into_iter().chain(words.split_whitespace()))
            .into_command()
    }

    #[test]
    fn clap_accepts_the_definition_of_the_arguments() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_table_is_the_default() {
        let Command::Table(options) = parse("--runs 3 --quick --only a --only b --bench") else {
            panic!("the command is not `table`")
        };
        assert_eq!((options.runs, options.connections, options.quick), (Some(3), 64, true));
        assert_eq!(options.only, ["a", "b"]);
        assert!(matches!(
            parse("growth --quick --bench"),
            Command::Growth(growth::Options { quick: true, .. })
        ));
    }
}
