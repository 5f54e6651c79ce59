//! Measures the table: runs the contestants of each row in turn, several times.

use std::time::Duration;

use clap::Args;

use crate::{
    counting::{self, Cost},
    cpu,
    duration::seconds,
    environment::Environment,
    load::{KeyPattern, Plan, Sample},
    measured::{Contestant, Measured, Settings},
    plot, release, report,
    rows::{self, Row},
    server::{self, Program, Server},
};

/// The options of `table`
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter runs, and no counting of round trips, statements and allocations
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs of each contestant; 5 by default, or 3 if quick
    #[arg(long)]
    pub(crate) runs: Option<usize>,
    /// Seconds per run; 2 by default, or 0.7 if quick
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Seconds to warm up before a run; 0.5 by default, or 0.2 if quick
    #[arg(long, value_parser = seconds)]
    warmup: Option<Duration>,
    /// Connections of the load
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Rows whose name contains this; may be repeated
    #[arg(long)]
    pub(crate) only: Vec<String>,
    /// An external contestant, as NAME=COMMAND; may be repeated
    #[arg(long, value_name = "NAME=COMMAND", value_parser = external)]
    external: Vec<(String, Program)>,
    /// The name of the result file, which then has no plot
    #[arg(long, value_name = "NAME")]
    save: Option<String>,
}

fn external(text: &str) -> Result<(String, Program), &'static str> {
    let (name, line) = text.split_once('=').ok_or("expected NAME=COMMAND")?;
    Ok((name.to_owned(), Program::External(line.to_owned())))
}

impl Settings {
    fn new(options: &Options) -> Self {
        let quick = options.quick;
        let seconds = |option: Option<Duration>, quick_default, default| {
            option.unwrap_or(Duration::from_millis(if quick { quick_default } else { default }))
        };
        Self {
            runs: options.runs.unwrap_or(if quick { 3 } else { 5 }),
            seconds: seconds(options.seconds, 700, 2000),
            warmup: seconds(options.warmup, 200, 500),
            connections: options.connections,
        }
    }
}

/// Measures the selected rows, prints the table, and writes it, with its plot unless it has a name.
pub(crate) fn main(options: &Options, counted: &str) {
    let (environment, settings) = (Environment::new(), Settings::new(options));
    let mut measured = Vec::new();
    for row in rows::select(&options.only) {
        let mut contestants = contestants(&row, options);
        measure(&environment, &row, &mut contestants, &settings);
        if !options.quick {
            let is_counted = |one: &&mut Contestant| {
                one.name != "bare" && matches!(one.program, Program::BuiltIn(..))
            };
            for contestant in contestants.iter_mut().filter(is_counted) {
                contestant.cost = counting::cost(
                    &environment,
                    row.store,
                    row.pattern,
                    &contestant.program,
                    counted,
                );
            }
        }
        let one = Measured { row, contestants };
        eprintln!("{}", report::line(&one));
        measured.push(one);
    }
    let text = report::table(&measured, &settings, &release::shares());
    println!("{text}");
    let name = options.save.as_deref().unwrap_or(if options.quick { "quick" } else { "table" });
    report::save(&format!("{name}.md"), &text);
    if options.save.is_none() {
        let bars: Vec<_> = measured.iter().map(plot::Bar::new).collect();
        plot::ratios(&report::path(&format!("{name}.svg")), &bars);
    }
}

fn contestants(row: &Row, options: &Options) -> Vec<Contestant> {
    let built_in = row.contestants.iter().map(|kind| {
        let words = ["--kind", *kind].map(String::from).to_vec();
        ((*kind).to_owned(), Program::BuiltIn(None, words))
    });
    let new =
        |(name, program)| Contestant { name, program, runs: Vec::new(), cost: Cost::default() };
    built_in.chain(options.external.iter().cloned()).map(new).collect()
}

/// Runs all contestants in turn. Each run has a new process and an empty store.
fn measure(
    environment: &Environment,
    row: &Row,
    contestants: &mut [Contestant],
    settings: &Settings,
) {
    let count = contestants.len();
    for run in 0..settings.runs {
        for turn in 0..count {
            // Each round starts with another contestant, so that the first place rotates.
            let contestant = &mut contestants[(turn + run) % count];
            let sample = run_once(environment, row, &contestant.program, settings);
            eprintln!(
                "{} {run} {:<12} {:>8.0}/s  p99 {:>6.0} µs  statuses {:?}  load busy {:.0} %",
                row.name,
                contestant.name,
                sample.rate(),
                sample.latency[1],
                sample.statuses,
                100.0 * sample.load_share
            );
            check(row.pattern, &contestant.name, &contestant.program, &sample);
            contestant.runs.push(sample);
        }
    }
}

/// One run of one contestant.
pub(crate) fn run_once(
    environment: &Environment,
    row: &Row,
    program: &Program,
    settings: &Settings,
) -> Sample {
    let server = Server::start(program, &environment.clean(row.store));
    let watched = environment.watched(row.store, &server);
    server::load(&Plan {
        connections: settings.connections,
        warmup: settings.warmup.max(row.settles_after),
        duration: settings.seconds,
        watched,
        busy_poll: environment.process(row.store).is_none() && cpu::can_pin(),
        ..Plan::new(server.at, row.pattern)
    })
}

/// Panics if the contestant did not do the work of the row.
pub(crate) fn check(pattern: KeyPattern, name: &str, program: &Program, sample: &Sample) {
    let created = sample.statuses.get(&201).copied().unwrap_or(0);
    let expected = match program {
        Program::BuiltIn(..) => created == sample.requests,
        // Some layers replay responses with status 200.
        Program::External(_) => {
            created + sample.statuses.get(&200).copied().unwrap_or(0) == sample.requests
        }
    };
    assert!(expected && sample.requests > 0, "{name}: unexpected statuses: {:?}", sample.statuses);
    if name.starts_with("layer") {
        let replays = if let KeyPattern::Replays(_) = pattern { sample.requests } else { 0 };
        assert_eq!(sample.replayed, replays, "number of replays");
    }
}
