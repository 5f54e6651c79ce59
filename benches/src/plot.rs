//! The plots, as SVG.

mod curves;

use std::{fs, path::Path};

use plotters::prelude::*;

pub(crate) use self::curves::{Line, Panel, curves};
use crate::{measured::Measured, spread::Spread};

const MET: RGBColor = RGBColor(46, 125, 50);
const MISSED: RGBColor = RGBColor(198, 40, 40);
const NO_GOAL: RGBColor = RGBColor(96, 125, 139);
const ROW: u32 = 30;
/// The width of the labels.
const LABELS: i32 = 230;

/// The colors of text and lines, which follow the reader's color scheme; the background is
/// transparent. The halo keeps text readable on a dark page if the reader's system is light.
const STYLE: &str = "<style>svg{--ink:#1f2328;--halo:#fff}\
    @media (prefers-color-scheme:dark){svg{--ink:#e6edf3;--halo:#1d232b}}\
    text{paint-order:stroke;stroke:var(--halo);stroke-width:3px;stroke-linejoin:round;\
    font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}</style>";

/// A row of the plot.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) share: Spread,
    pub(crate) goal: Option<f64>,
}

impl Bar {
    pub(crate) fn new(measured: &Measured) -> Self {
        let (name, goal) = (measured.row.name.to_owned(), measured.row.goal);
        Self { name, share: measured.share_of(measured.floor()), goal }
    }
}

/// Draws the layer's share of each floor: a bar to the median, a line from minimum to maximum, and
/// a tick at the goal.
pub(crate) fn ratios(path: &Path, bars: &[Bar]) {
    let mut svg = String::new();
    draw(&mut svg, bars);
    write(path, &svg);
}

/// Writes a plot whose black is the color of the page's text.
fn write(path: &Path, svg: &str) {
    let (head, shapes) = svg.split_once('\n').expect("the first line is the `svg` element");
    let shapes = shapes.replace("#000000", "var(--ink)");
    fs::write(path, format!("{head}\n{STYLE}\n{shapes}")).unwrap();
}

fn draw(svg: &mut String, bars: &[Bar]) {
    let rows = bars.len() as u32;
    let area = SVGBackend::with_string(svg, (810, 90 + ROW * rows)).into_drawing_area();
    let most = bars.iter().fold(1.1, |most: f64, bar| most.max(bar.share.max * 1.05));
    let mut chart = ChartBuilder::on(&area)
        .caption("Throughput as a share of the floor's", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(0.0..most, 0.0..f64::from(rows))
        .unwrap();
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(2)
        .y_label_formatter(&|_| String::new())
        .x_labels(12)
        .x_max_light_lines(0)
        .x_label_formatter(&|share| format!("{share:.1}"))
        .label_style(("sans-serif", 15))
        .draw()
        .unwrap();
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, f64::from(rows))], BLACK)]).unwrap();
    for (at, Bar { name, share, goal }) in bars.iter().enumerate() {
        // The first row is at the top.
        let y = f64::from(rows) - at as f64 - 0.5;
        let color = goal.map_or(NO_GOAL, |goal| if share.median >= goal { MET } else { MISSED });
        let bar = |from: f64, to: f64, half: f64| [(from, y - half), (to, y + half)];
        chart
            .draw_series([
                Rectangle::new(bar(0.0, share.median, 0.3), color.mix(0.35).filled()),
                Rectangle::new(bar(share.min, share.max, 0.06), color.filled()),
                Rectangle::new(
                    bar(share.median - 0.002, share.median + 0.002, 0.3),
                    color.filled(),
                ),
            ])
            .unwrap();
        if let Some(goal) = *goal {
            chart
                .draw_series([PathElement::new(bar(goal, goal, 0.45), BLACK.stroke_width(2))])
                .unwrap();
        }
        let (x, y) = chart.backend_coord(&(0.0, y));
        let label = format!("{name} {:.2}", share.median);
        area.draw(&Text::new(label, (x - LABELS, y - 7), ("sans-serif", 15).into_font())).unwrap();
    }
    area.present().unwrap();
}
