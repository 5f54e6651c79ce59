//! The plot of the open loop: latency against offered load.

use std::path::Path;

use plotters::prelude::*;

use super::write;

const WIDTH: u32 = 810;
const HEAD: u32 = 78;
const PANEL: u32 = 250;
const FONT: (&str, u32) = ("sans-serif", 14);
/// The latencies of the axis, in milliseconds.
const LATENCIES: std::ops::Range<f64> = 0.1..10_000.0;

/// The contestants with their colors, which are visible on white and on black.
const COLORS: [(&str, RGBColor); 3] = [
    ("layer", RGBColor(46, 125, 210)),
    ("layer-alone", RGBColor(217, 119, 6)),
    ("floor", RGBColor(130, 140, 150)),
];

/// A panel of the plot.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) lines: Vec<Line>,
}

/// The latencies of a contestant: requests per second, and milliseconds.
pub(crate) struct Line {
    /// `layer`, `layer-alone` or `floor`.
    pub(crate) name: &'static str,
    pub(crate) p50: Vec<(f64, f64)>,
    pub(crate) p99: Vec<(f64, f64)>,
}

/// Draws a panel for each row, two beside each other.
pub(crate) fn curves(path: &Path, panels: &[Panel]) {
    let mut svg = String::new();
    let rows = panels.len().div_ceil(2) as u32;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEAD + PANEL * rows));
        let (head, rest) = area.into_drawing_area().split_vertically(HEAD);
        legend(&head);
        for (area, panel) in rest.split_evenly((rows as usize, 2)).iter().zip(panels) {
            draw(area, panel);
        }
        rest.present().unwrap();
    }
    write(path, &svg);
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn legend(area: &Area<'_>) {
    let text = |words: &str, at| area.draw(&Text::new(words.to_owned(), at, FONT)).unwrap();
    let title = "Latency against offered load, from the arrival of a request";
    area.draw(&Text::new(title, (14, 12), ("sans-serif", 18))).unwrap();
    let mut x = 14;
    for (name, color) in COLORS {
        let stroke = color.stroke_width(3);
        area.draw(&PathElement::new([(x, 54), (x + 26, 54)], stroke)).unwrap();
        text(name, (x + 32, 47));
        x += 50 + 8 * name.len() as i32;
    }
    for (dashed, name) in [(false, "p99"), (true, "p50")] {
        let x = if dashed { 520 } else { 400 };
        let sample = [(x, 54), (x + 40, 54)];
        if dashed {
            for from in (0..40).step_by(8) {
                let dash = [(x + from, 54), (x + from + 4, 54)];
                area.draw(&PathElement::new(dash, BLACK.stroke_width(2))).unwrap();
            }
        } else {
            area.draw(&PathElement::new(sample, BLACK.stroke_width(2))).unwrap();
        }
        text(name, (x + 46, 47));
    }
}

fn draw(area: &Area<'_>, panel: &Panel) {
    let ends = panel.lines.iter().flat_map(|line| line.p99.last());
    let most = ends.fold(1.0, |most: f64, (rate, _)| most.max(*rate)) * 1.04;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..most, LATENCIES.log_scale())
        .unwrap();
    let faint = BLACK.mix(0.12);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(faint)
        .x_labels(6)
        .y_labels(6)
        .x_desc("requests per second offered")
        .x_label_formatter(&|rate| {
            if *rate == 0.0 { "0".into() } else { format!("{} k", rate / 1000.0) }
        })
        .y_label_formatter(&|latency| label(*latency))
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()
        .unwrap();
    for line in &panel.lines {
        let found = COLORS.iter().find(|(name, _)| *name == line.name);
        let (_, color) = found.expect("each contestant has a color");
        let clip = |points: &[(f64, f64)]| -> Vec<_> {
            let clip = |latency: f64| latency.clamp(LATENCIES.start, LATENCIES.end);
            points.iter().map(|(rate, latency)| (*rate, clip(*latency))).collect()
        };
        let (p50, p99) = (clip(&line.p50), clip(&line.p99));
        chart.draw_series(DashedLineSeries::new(p50, 4, 4, color.stroke_width(2))).unwrap();
        chart.draw_series(LineSeries::new(p99.clone(), color.stroke_width(2))).unwrap();
        chart
            .draw_series(p99.into_iter().map(|point| Circle::new(point, 3, color.filled())))
            .unwrap();
    }
}

fn label(latency: f64) -> String {
    if latency < 1000.0 { format!("{latency} ms") } else { format!("{} s", latency / 1000.0) }
}
