//! Latency against offered load, up to and beyond saturation, with an open loop.

use std::time::Duration;

use clap::Args;

use crate::{
    cpu,
    duration::seconds,
    environment::Environment,
    load::{Plan, Sample},
    measured::Settings,
    plot, report,
    rows::{self, Row},
    server::{self, Program, Server},
    spread::Spread,
    table,
};

mod results;

/// The rows that are measured by default.
const ROWS: [&str; 5] =
    ["postgres/first", "sqlite/first", "postgres/replay", "memory/first", "redis/first"];
/// The offered loads, as shares of the saturation of the contestant.
const SHARES: &[f64] = &[0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25];
const QUICK_SHARES: &[f64] = &[0.1, 0.5, 0.9, 1.2];

/// The options of `open-loop`
#[derive(Args)]
pub(crate) struct Options {
    /// Shorter runs, and fewer of them
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs at each rate; 3 by default, or 1 if quick
    #[arg(long)]
    runs: Option<usize>,
    /// Seconds per run; 4 by default, or 1 if quick
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Connections of the load
    #[arg(long, default_value_t = 512)]
    pub(crate) connections: usize,
    /// Rows whose name contains this; may be repeated
    #[arg(long)]
    pub(crate) only: Vec<String>,
}

/// The measurements of one row.
struct Curves {
    row: Row,
    contestants: Vec<Curve>,
}

/// The measurements of one contestant.
struct Curve {
    name: &'static str,
    /// Responses per second of the closed loop.
    saturation: f64,
    points: Vec<Point>,
}

/// The measurements at one rate.
struct Point {
    /// The offered load as a share of the saturation.
    share: f64,
    /// Requests per second.
    offered: f64,
    runs: Vec<Sample>,
}

impl Point {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        Spread::of(self.runs.iter().map(of)).median
    }
}

/// Measures the selected rows, prints the table, and writes the table and its plot.
pub(crate) fn main(options: &Options) {
    let (environment, settings) = (Environment::new(), settings(options));
    let shares = if options.quick { QUICK_SHARES } else { SHARES };
    let curves: Vec<_> = selected(options)
        .into_iter()
        .map(|row| Curves {
            contestants: contestants(&row)
                .map(|kind| curve(&environment, &row, kind, &settings, shares))
                .collect(),
            row,
        })
        .collect();
    let text = results::table(&curves, &settings);
    println!("{text}");
    let name = if options.quick { "quick.open-loop" } else { "open-loop" };
    report::save(&format!("{name}.md"), &text);
    let panels: Vec<_> = curves.iter().map(results::panel).collect();
    plot::curves(&report::path(&format!("{name}.svg")), &panels);
}

fn settings(options: &Options) -> Settings {
    let quick = options.quick;
    Settings {
        runs: options.runs.unwrap_or(if quick { 1 } else { 3 }),
        seconds: options.seconds.unwrap_or(Duration::from_secs(if quick { 1 } else { 4 })),
        warmup: Duration::from_millis(if quick { 300 } else { 1000 }),
        connections: options.connections,
    }
}

fn selected(options: &Options) -> Vec<Row> {
    let rows = rows::select(&options.only).into_iter();
    rows.filter(|row| !options.only.is_empty() || ROWS.contains(&row.name)).collect()
}

/// The layer, its floor, and the layer without group commit.
fn contestants(row: &Row) -> impl Iterator<Item = &'static str> + use<> {
    let kinds = row.contestants.iter().copied().enumerate();
    kinds.filter(|(at, kind)| *at < 2 || *kind == "layer-alone").map(|(_, kind)| kind)
}

fn curve(
    environment: &Environment,
    row: &Row,
    name: &'static str,
    settings: &Settings,
    shares: &[f64],
) -> Curve {
    let program = Program::BuiltIn(None, ["--kind", name].map(String::from).to_vec());
    let closed = (0..settings.runs).map(|_| {
        let sample = table::run_once(environment, row, &program, settings);
        table::check(row.pattern, name, &program, &sample);
        sample.rate()
    });
    let saturation = Spread::of(closed).median;
    eprintln!("{} {name}: {saturation:.0}/s in a closed loop", row.name);
    let point = |&share: &f64| {
        let offered = share * saturation;
        let runs: Vec<_> = (0..settings.runs)
            .map(|run| at_rate(environment, row, &program, settings, (offered, run as u64)))
            .collect();
        let point = Point { share, offered, runs };
        eprintln!(
            "{} {name}: {offered:.0}/s offered, {:.0}/s achieved, p99 {:.1} ms, load busy {:.0} %",
            row.name,
            point.median(Sample::rate),
            point.median(|sample| sample.latency[1]) / 1e3,
            100.0 * point.median(|sample| sample.load_share)
        );
        point
    };
    Curve { name, saturation, points: shares.iter().map(point).collect() }
}

/// One run at one rate, with a new process and an empty store.
fn at_rate(
    environment: &Environment,
    row: &Row,
    program: &Program,
    settings: &Settings,
    (rate, run): (f64, u64),
) -> Sample {
    let server = Server::start(program, &environment.clean(row.store));
    server::load(&Plan {
        connections: settings.connections,
        arrivals: Some(rate),
        warmup: settings.warmup.max(row.settles_after),
        duration: settings.seconds,
        seed: run + 1,
        busy_poll: environment.process(row.store).is_none() && cpu::can_pin(),
        ..Plan::new(server.at, row.pattern)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_of_every_row_and_its_layer_alone_are_contestants() {
        let kinds = |name: &str| {
            let row = rows::select(&[name.to_owned()])[0];
            contestants(&row).collect::<Vec<_>>()
        };
        assert_eq!(kinds("postgres/first"), ["layer", "floor", "layer-alone"]);
        assert_eq!(kinds("postgres/replay"), ["layer", "floor-read", "layer-alone"]);
        assert_eq!(kinds("memory/first"), ["layer", "bare"]);
        assert_eq!(kinds("redis/first"), ["layer", "floor"]);
    }
}
