//! What was measured, as Markdown.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::{
    cpu,
    table::{Contestant, Measured, Settings},
};

/// The median of some numbers, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_by(f64::total_cmp);
        let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
        let (low, high) = (at(numbers.len().saturating_sub(1) / 2), at(numbers.len() / 2));
        Self { median: f64::midpoint(low, high), least: at(0), most: at(numbers.len().saturating_sub(1)) }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.least, self.most)
    }
}

impl Measured {
    pub(crate) fn layer(&self) -> &Contestant {
        &self.contestants[0]
    }

    pub(crate) fn floor(&self) -> &Contestant {
        &self.contestants[1]
    }

    /// The layer's throughput as a share of another's, run by run.
    pub(crate) fn share_of(&self, other: &Contestant) -> Spread {
        Spread::of(self.layer().runs.iter().zip(&other.runs).map(|(layer, other)| layer.rate() / other.rate()))
    }

    /// The floor's time on processors as a share of the layer's: server and store together.
    fn cpu_share(&self) -> Spread {
        let cpu = |seen: &crate::load::Seen| seen.cpu("server") + seen.cpu("store");
        Spread::of(self.layer().runs.iter().zip(&self.floor().runs).map(|(layer, floor)| cpu(floor) / cpu(layer)))
    }
}

impl Contestant {
    fn rate(&self) -> f64 {
        Spread::of(self.runs.iter().map(|seen| seen.rate())).median
    }

    fn latency(&self, at: usize) -> f64 {
        Spread::of(self.runs.iter().map(|seen| seen.latency[at])).median
    }

    fn cpu(&self, of: &str) -> f64 {
        Spread::of(self.runs.iter().map(|seen| seen.cpu(of))).median
    }
}

/// One row in a line.
pub(crate) fn line(measured: &Measured) -> String {
    let goal = measured.row.goal.map_or(String::new(), |goal| format!(", goal {goal:.2}"));
    let share = measured.share_of(measured.floor());
    format!("== {}: {share} × {}{goal}", measured.row.name, measured.floor().name)
}

/// All of it.
pub(crate) fn table(measured: &[Measured], settings: &Settings) -> String {
    let mut text = format!("{}\n", conditions(settings));
    text += "\n## Throughput\n\nThe layer's requests a second as a share of the floor's: median, least and greatest of the runs.\n\n";
    text += "| work | floor | share of the floor | goal | layer /s | floor /s | bare handler /s |\n|---|---|---|---|---|---|---|\n";
    for one in measured {
        let goal = one.row.goal.map_or("–".into(), |goal| {
            format!("≥ {goal:.2} {}", if one.share_of(one.floor()).median >= goal { "✓" } else { "missed" })
        });
        let bare = one
            .contestants
            .iter()
            .find(|other| other.name == "bare")
            .map_or("–".into(), |bare| thousands(bare.rate()));
        let (layer, floor, share) =
            (thousands(one.layer().rate()), thousands(one.floor().rate()), one.share_of(one.floor()));
        let _ = writeln!(
            text,
            "| {} | {} | **{share}** | {goal} | {layer} | {floor} | {bare} |",
            one.row.name, one.row.floor
        );
    }
    text += &others(measured);
    text += "\n## Latency\n\nMicroseconds, median of the runs.\n\n| work | who | p50 | p99 | p99.9 |\n|---|---|---|---|---|\n";
    for (one, contestant) in each(measured) {
        let [p50, p99, p999] = [0, 1, 2].map(|at| contestant.latency(at));
        let _ = writeln!(text, "| {} | {} | {p50:.0} | {p99:.0} | {p999:.0} |", one.row.name, contestant.name);
    }
    text + &costs(measured)
}

fn costs(measured: &[Measured]) -> String {
    let mut text = "\n## Cost of a request\n\nMicroseconds of a processor, in the server under test and in the store's own server. \
        Round trips are counted before the store (how often Postgres says that it is ready, in a relay; Redis' `MONITOR`), and statements \
        in it (`pg_stat_statements`; SQLite's by sqlx's log). Allocations are the server's. Each is counted in a run of its own.\n\n\
        | work | who | server µs | store µs | round trips | statements | allocations | bytes allocated |\n\
        |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (one, contestant) in each(measured) {
        let number =
            |number: Option<f64>, digits: usize| number.map_or("–".into(), |number| format!("{number:.digits$}"));
        let cost = &contestant.cost;
        let store = Some(contestant.cpu("store")).filter(|cpu| *cpu > 0.0);
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {} | {} | {} | {} | {} |",
            one.row.name,
            contestant.name,
            contestant.cpu("server"),
            number(store, 1),
            number(cost.round_trips, 2),
            number(cost.statements, 2),
            number(cost.allocations, 1),
            number(cost.allocated_bytes, 0)
        );
    }
    text += "\nThe floor's processor time as a share of the layer's, server and store together:\n\n| work | share |\n|---|---|\n";
    for one in measured {
        let _ = writeln!(text, "| {} | {} |", one.row.name, one.cpu_share());
    }
    text
}

/// Those beside layer, floor and bare handler.
fn others(measured: &[Measured]) -> String {
    let external = |one: &Contestant| matches!(one.program, crate::server::Program::External(_));
    let mut text = String::new();
    for one in measured {
        for other in one.contestants.iter().filter(|other| external(other)) {
            if text.is_empty() {
                text += "\n## Others\n\n| work | who | /s | the layer's share of it | processor µs: theirs, the layer's |\n|---|---|---|---|---|\n";
            }
            let cpu = |one: &Contestant| one.cpu("server") + one.cpu("store");
            let (name, rate, share) = (&other.name, thousands(other.rate()), one.share_of(other));
            let (theirs, ours) = (cpu(other), cpu(one.layer()));
            let _ = writeln!(text, "| {} | {name} | {rate} | **{share}** | {theirs:.1}, {ours:.1} |", one.row.name);
        }
    }
    text
}

fn each(measured: &[Measured]) -> impl Iterator<Item = (&Measured, &Contestant)> {
    measured.iter().flat_map(|one| one.contestants.iter().map(move |contestant| (one, contestant)))
}

fn thousands(number: f64) -> String {
    if number < 1000.0 { format!("{number:.0}") } else { format!("{:.1} k", number / 1000.0) }
}

/// Where and how it was measured.
fn conditions(settings: &Settings) -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, model)| model);
    let place = if !cpu::can_pin() {
        "nothing is pinned"
    } else {
        "the server under test on the first processor, the load on the last, the store where there is room"
    };
    format!(
        "{} processors ({model}); {place}. Loopback, {} keep-alive connections with one request each under way, a body of 200 bytes, \
         an answer of 1 KiB. {} runs of {:.1} s each after {:.1} s to warm up, contestants in turn, each in a new process on an \
         empty store.",
        cpu::count(),
        settings.connections,
        settings.runs,
        settings.seconds.as_secs_f64(),
        settings.warmup.as_secs_f64()
    )
}

/// Where results are kept.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results")).join(name)
}

/// Keeps a result.
pub(crate) fn save(name: &str, text: &str) {
    let path = path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    eprintln!("written: {}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0].into_iter());
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of([7.0].into_iter()).median, 7.0);
    }
}
