//! The commands.

use clap::CommandFactory as _;

use crate::{
    args::{Arguments, Command, ConnectionArguments, EraseArguments, ListArguments, StoreCommand},
    failure::Failure,
    report::Report,
    session::{Needs, Session, fingerprint_keys},
};

mod decide;
mod doctor;
mod erase;
mod list;
mod log;
mod man;
mod purge;
mod reseal;
mod resolve;
mod sealed;
mod show;

/// Executes the command of a command line.
pub(crate) async fn run(arguments: Arguments) -> Result<Report, Failure> {
    match &arguments.command {
        Command::Store(command) => run_on_store(&arguments.connection, command).await,
        Command::Completions { shell } => Ok(completions(*shell)),
        Command::Man { folder } => man::man(folder.as_deref()),
    }
}

async fn run_on_store(
    connection: &ConnectionArguments,
    command: &StoreCommand,
) -> Result<Report, Failure> {
    let mut needs = Needs::default();
    if let StoreCommand::Migrate(migrate) = command {
        (needs.creates, needs.partitions) = (true, migrate.partitions);
    }
    if let StoreCommand::List(ListArguments { principal, .. })
    | StoreCommand::Erase(EraseArguments { principal, .. }) = command
    {
        needs.keys = fingerprint_keys(principal)?;
    }
    let session = &Session::open(connection, needs).await?;
    match command {
        StoreCommand::List(list) => list::list(session, list).await,
        StoreCommand::Show(show) => show::show(session, show).await,
        StoreCommand::Explain(selection) => show::explain(session, selection).await,
        StoreCommand::Resolve(resolve) => {
            sealed::verify_resolution(session, resolve).await?;
            resolve::resolve(session, resolve).await
        }
        StoreCommand::Release(decided) => decide::release(session, decided).await,
        StoreCommand::Forget(decided) => decide::forget(session, decided).await,
        StoreCommand::Erase(erase) => erase::erase(session, erase).await,
        StoreCommand::Purge => purge::purge(session).await,
        StoreCommand::Reseal(reseal) => reseal::reseal(session, reseal).await,
        StoreCommand::Stats => doctor::stats(session).await,
        StoreCommand::Migrate(_) => doctor::migrate(session).await,
        StoreCommand::Doctor => doctor::doctor(session).await,
        StoreCommand::Log(log) => log::log(session, log).await,
    }
}

fn completions(shell: clap_complete::Shell) -> Report {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "idempotency", &mut script);
    Report::of_text(String::from_utf8_lossy(&script).into_owned())
}
