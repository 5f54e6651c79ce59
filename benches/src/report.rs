//! The results, as Markdown.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use crate::{
    cpu,
    measured::{Contestant, Measured, Settings},
    release,
    server::Program,
};

/// Formats a row as one line.
pub(crate) fn line(measured: &Measured) -> String {
    let goal = measured.row.goal.map_or(String::new(), |goal| format!(", goal {goal:.2}"));
    let share = measured.share_of(measured.floor());
    format!("== {}: {share} × {}{goal}", measured.row.name, measured.floor().name)
}

/// Formats all rows.
pub(crate) fn table(
    measured: &[Measured],
    settings: &Settings,
    released: &Result<BTreeMap<String, f64>, String>,
) -> String {
    let mut text = format!("{} The contestants run in turn.\n", conditions(settings));
    text += "\n## Throughput\n\nThe layer's requests per second as a share of the floor's: \
             median, minimum and maximum of the runs.\n\n";
    text += "| work | floor | share of the floor | goal | layer /s | floor /s | bare handler /s |\n\
             |---|---|---|---|---|---|---|\n";
    for one in measured {
        let goal = one.row.goal.map_or("–".into(), |goal| {
            format!(
                "≥ {goal:.2} {}",
                if one.share_of(one.floor()).median >= goal { "✓" } else { "missed" }
            )
        });
        let bare = one
            .contestants
            .iter()
            .find(|other| other.name == "bare")
            .map_or("–".into(), |bare| thousands(bare.rate()));
        let (layer, floor, share) = (
            thousands(one.layer().rate()),
            thousands(one.floor().rate()),
            one.share_of(one.floor()),
        );
        let _ = writeln!(
            text,
            "| {} | {} | **{share}** | {goal} | {layer} | {floor} | {bare} |",
            one.row.name, one.row.floor
        );
    }
    for one in measured {
        if let Some(remark) = one.row.remark {
            let _ = write!(text, "\n`{}`: {remark}\n", one.row.name);
        }
    }
    text += &release::comparison(measured, released);
    text += &others(measured);
    text += "\n## Latency\n\nMicroseconds, median of the runs.\n\n\
             | work | contestant | p50 | p99 | p99.9 |\n|---|---|---|---|---|\n";
    for (one, contestant) in each(measured) {
        let [p50, p99, p999] = [0, 1, 2].map(|at| contestant.latency(at));
        let _ = writeln!(
            text,
            "| {} | {} | {p50:.0} | {p99:.0} | {p999:.0} |",
            one.row.name, contestant.name
        );
    }
    text + &costs(measured)
}

fn costs(measured: &[Measured]) -> String {
    let mut text =
        "\n## Cost of a request\n\nMicroseconds of a processor, in the server under test \
        and in the store's server. Round trips are counted in front of the store (how often \
        Postgres says that it is ready, in a relay; Redis' `MONITOR`), and statements in it \
        (`pg_stat_statements`; SQLite's by sqlx's log, MariaDB's by `Questions`). Allocations are \
        the server's. Each is counted in a separate run.\n\n\
        | work | contestant | server µs | store µs | round trips | statements | allocations \
        | bytes allocated |\n\
        |---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for (one, contestant) in each(measured) {
        let number = |number: Option<f64>, digits: usize| {
            number.map_or("–".into(), |number| format!("{number:.digits$}"))
        };
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
    text
}

/// Formats the external contestants.
fn others(measured: &[Measured]) -> String {
    let external = |one: &Contestant| matches!(one.program, Program::External(_));
    let mut text = String::new();
    for one in measured {
        for other in one.contestants.iter().filter(|other| external(other)) {
            if text.is_empty() {
                text += "\n## Other servers\n\n| work | contestant | /s | the layer's share of it \
                         | processor µs: theirs, the layer's |\n|---|---|---|---|---|\n";
            }
            let cpu = |one: &Contestant| one.cpu("server") + one.cpu("store");
            let (name, rate, share) = (&other.name, thousands(other.rate()), one.share_of(other));
            let (theirs, ours) = (cpu(other), cpu(one.layer()));
            let _ = writeln!(
                text,
                "| {} | {name} | {rate} | **{share}** | {theirs:.1}, {ours:.1} |",
                one.row.name
            );
        }
    }
    text
}

fn each(measured: &[Measured]) -> impl Iterator<Item = (&Measured, &Contestant)> {
    measured.iter().flat_map(|one| one.contestants.iter().map(move |contestant| (one, contestant)))
}

pub(crate) fn thousands(number: f64) -> String {
    if number < 1000.0 { format!("{number:.0}") } else { format!("{:.1} k", number / 1000.0) }
}

/// Formats microseconds as milliseconds with about three digits.
pub(crate) fn milliseconds(micros: f64) -> String {
    let digits = match micros {
        ..10_000.0 => 2,
        ..100_000.0 => 1,
        _ => 0,
    };
    format!("{:.digits$}", micros / 1e3)
}

/// The model of the processors.
pub(crate) fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("?", |(_, model)| model).to_owned()
}

/// Describes the machine and the settings.
pub(crate) fn conditions(settings: &Settings) -> String {
    let place = if !cpu::can_pin() {
        "nothing is pinned"
    } else {
        "the server under test on the first processor, the load on the last, the store on either"
    };
    format!(
        "{} processors ({}); {place}. Loopback, {} keep-alive connections with one \
         request each in flight, a body of 200 bytes, a response of 1 KiB. {} runs of {:.1} s each \
         after {:.1} s to warm up, each in a new process on an empty store.",
        cpu::count(),
        processor(),
        settings.connections,
        settings.runs,
        settings.seconds.as_secs_f64(),
        settings.warmup.as_secs_f64()
    )
}

/// The path of a result.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results")).join(name)
}

/// Writes a result.
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
    fn milliseconds_have_about_three_digits() {
        let texts = [140.0, 3_456.0, 34_560.0, 345_600.0].map(milliseconds);
        assert_eq!(texts, ["0.14", "3.46", "34.6", "346"]);
    }
}
