//! The results of the open loop: a table and the panels of a plot.

use std::fmt::Write as _;

use super::{Curve, Curves, Point};
use crate::{
    load::Sample,
    measured::Settings,
    plot::{Line, Panel},
    report::{self, milliseconds, thousands},
};

/// Formats all rows.
pub(super) fn table(curves: &[Curves], settings: &Settings) -> String {
    let mut text = format!(
        "{}\n\nRequests arrive at a fixed average rate (a Poisson process over all connections), \
         however fast the server responds; a request that finds all connections busy waits for \
         one. Latencies are in milliseconds and count from the arrival, medians of the runs. Each \
         contestant is offered shares of its saturation: what it achieves in a closed loop with \
         as many connections. *Late* is the share of requests that took longer than a second, \
         *load* the share of its processor that the load used.\n",
        report::conditions(settings)
    );
    for Curves { row, contestants } in curves {
        let _ = writeln!(text, "\n## {}\n", row.name);
        for curve in contestants {
            let _ = writeln!(
                text,
                "* `{}`: {} /s at saturation",
                curve.name,
                thousands(curve.saturation)
            );
        }
        text += "\n| contestant | share of saturation | offered /s | achieved /s | p50 | p99 \
                 | p99.9 | late | load | not 201 |\n|---|---|---|---|---|---|---|---|---|---|\n";
        let points = contestants
            .iter()
            .flat_map(|curve| curve.points.iter().map(move |point| line(curve.name, point)));
        text.extend(points);
    }
    text
}

fn line(name: &str, point: &Point) -> String {
    let [p50, p99, p999] =
        [0, 1, 2].map(|at| milliseconds(point.median(|sample| sample.latency[at])));
    let [offered, achieved] = [point.offered, point.median(Sample::rate)].map(thousands);
    let [late, load] = [
        100.0 * point.median(|sample| sample.late),
        100.0 * point.median(|sample| sample.load_share),
    ];
    let failed: u64 = point.runs.iter().map(failed).sum();
    format!(
        "| {name} | {:.2} | {offered} | {achieved} | {p50} | {p99} | {p999} | {late:.1} % \
         | {load:.0} % | {failed} |\n",
        point.share
    )
}

/// Responses with another status than that of the handler, and requests without a response.
fn failed(sample: &Sample) -> u64 {
    let others = sample.statuses.iter().filter(|(status, _)| **status != 201);
    others.map(|(_, count)| count).sum::<u64>() + sample.unanswered
}

/// The panel of a row.
pub(super) fn panel(curves: &Curves) -> Panel {
    let points = |curve: &Curve, at: usize| {
        let point =
            |point: &Point| (point.offered, point.median(|sample| sample.latency[at]) / 1e3);
        curve.points.iter().map(point).collect()
    };
    let line = |curve: &Curve| Line {
        name: if curve.name.starts_with("layer") { curve.name } else { "floor" },
        p50: points(curve, 0),
        p99: points(curve, 1),
    };
    Panel {
        title: curves.row.name.to_owned(),
        lines: curves.contestants.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_response_have_failed() {
        let statuses = [(201, 7), (409, 2)].into();
        let sample = Sample { statuses, unanswered: 3, ..Sample::default() };
        assert_eq!(failed(&sample), 5);
    }
}
