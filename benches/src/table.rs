//! The table: each row's contestants in turn, several times over, and what became of them beside each other.

use std::time::Duration;

use crate::{
    arguments::Arguments,
    bed::{Bed, Kept},
    counting::{self, Cost},
    cpu,
    load::{Plan, Seen, Watched, Work},
    plot, report,
    rows::{self, Row},
    server::{self, Program, Server},
};

/// How long, how often and how hard.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) runs: usize,
    pub(crate) seconds: Duration,
    pub(crate) warmup: Duration,
    pub(crate) connections: usize,
}

impl Settings {
    pub(crate) fn of(arguments: &Arguments) -> Self {
        let quick = arguments.has("quick");
        Self {
            runs: arguments.number("runs", if quick { 3 } else { 5 }),
            seconds: arguments.seconds("seconds", if quick { 0.7 } else { 2.0 }),
            warmup: arguments.seconds("warmup", if quick { 0.2 } else { 0.5 }),
            connections: arguments.number("connections", 64),
        }
    }
}

/// A row and what was measured in it.
pub(crate) struct Measured {
    pub(crate) row: Row,
    pub(crate) contestants: Vec<Contestant>,
}

/// One that does a row's work.
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) runs: Vec<Seen>,
    pub(crate) cost: Cost,
}

/// Measures the rows that are asked for, prints the table, and writes it with its plot.
pub(crate) fn main(arguments: &Arguments, counted: &str) {
    let (bed, settings) = (Bed::new(), Settings::of(arguments));
    let mut measured = Vec::new();
    for row in rows::chosen(arguments.all("only")) {
        let mut contestants = contestants(&row, arguments);
        measure(&bed, &row, &mut contestants, &settings);
        if !arguments.has("quick") {
            let is_counted = |one: &&mut Contestant| one.name != "bare" && matches!(one.program, Program::Own(..));
            for contestant in contestants.iter_mut().filter(is_counted) {
                contestant.cost = counting::cost(&bed, row.kept, row.work, &contestant.program, counted);
            }
        }
        let one = Measured { row, contestants };
        eprintln!("{}", report::line(&one));
        measured.push(one);
    }
    let text = report::table(&measured, &settings);
    println!("{text}");
    let name = arguments.text("save").unwrap_or(if arguments.has("quick") { "quick" } else { "table" });
    report::save(&format!("{name}.md"), &text);
    plot::ratios(&report::path(&format!("{name}.svg")), &measured);
}

fn contestants(row: &Row, arguments: &Arguments) -> Vec<Contestant> {
    let own = row.contestants.iter().map(|kind| {
        let words = ["--kind", *kind].map(String::from).to_vec();
        ((*kind).to_owned(), Program::Own(None, words))
    });
    let external = arguments.all("external").map(|said| {
        let (name, line) = said.split_once('=').expect("`--external NAME=COMMAND`");
        (name.to_owned(), Program::External(line.to_owned()))
    });
    let new = |(name, program)| Contestant { name, program, runs: Vec::new(), cost: Cost::default() };
    own.chain(external).map(new).collect()
}

/// Runs all contestants in turn, as often as the settings say. Each run has a new process and an empty store.
fn measure(bed: &Bed, row: &Row, contestants: &mut [Contestant], settings: &Settings) {
    let count = contestants.len();
    for run in 0..settings.runs {
        for turn in 0..count {
            // Another one begins each time, so that none always runs after the same one.
            let contestant = &mut contestants[(turn + run) % count];
            let seen = run_once(bed, row.kept, row.work, &contestant.program, settings);
            eprintln!(
                "{} {run} {:<12} {:>8.0}/s  p99 {:>6.0} µs  statuses {:?}  load busy {:.0} %",
                row.name,
                contestant.name,
                seen.rate(),
                seen.latency[1],
                seen.statuses,
                100.0 * seen.own_share
            );
            check(row.work, contestant, &seen);
            contestant.runs.push(seen);
        }
    }
}

/// One run of one contestant.
pub(crate) fn run_once(bed: &Bed, kept: Kept, work: Work, program: &Program, settings: &Settings) -> Seen {
    let server = Server::start(program, &bed.clean(kept));
    let mut watched = vec![("server".to_owned(), server.process())];
    watched.extend(bed.process(kept).map(|process| ("store".to_owned(), process)));
    server::load(&Plan {
        to: server.at,
        work,
        connections: settings.connections,
        warmup: settings.warmup,
        duration: settings.seconds,
        requests: None,
        seed: 1,
        seeded: false,
        watched: Watched(watched),
        awake: bed.process(kept).is_none() && cpu::can_pin(),
    })
}

/// A contestant that does something else than the row's work would be fast for nothing.
fn check(work: Work, contestant: &Contestant, seen: &Seen) {
    let created = seen.statuses.get(&201).copied().unwrap_or(0);
    let expected = match contestant.program {
        Program::Own(..) => created == seen.requests,
        // Some layers answer a replay with 200.
        Program::External(_) => created + seen.statuses.get(&200).copied().unwrap_or(0) == seen.requests,
    };
    assert!(
        expected && seen.requests > 0,
        "{}: not every answer is the handler's: {:?}",
        contestant.name,
        seen.statuses
    );
    if contestant.name.starts_with("layer") {
        let replays = if let Work::Replays(_) = work { seen.requests } else { 0 };
        assert_eq!(seen.replayed, replays, "how many answers are replays");
    }
}
