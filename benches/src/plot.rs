//! Plots, as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::{report::Spread, table::Measured};

const MET: RGBColor = RGBColor(46, 125, 50);
const MISSED: RGBColor = RGBColor(198, 40, 40);
const PLAIN: RGBColor = RGBColor(96, 125, 139);
const ROW: u32 = 30;
/// Room for the names of rows.
const NAMES: i32 = 190;

/// The layer's share of each floor, as bars from least to greatest with a tick at the median, and the goals.
pub(crate) fn ratios(path: &Path, measured: &[Measured]) {
    let rows = measured.len() as u32;
    let area = SVGBackend::new(path, (810, 90 + ROW * rows)).into_drawing_area();
    area.fill(&WHITE).unwrap();
    let shares: Vec<Spread> = measured.iter().map(|one| one.share_of(one.floor())).collect();
    let most = shares.iter().fold(1.1, |most: f64, share| most.max(share.most * 1.05));
    let mut chart = ChartBuilder::on(&area)
        .caption("Throughput as a share of the floor's", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(0.0..most, 0.0..f64::from(rows))
        .unwrap();
    let name = |at: f64| measured.get(at as usize).map_or(String::new(), |one| one.row.name.to_owned());
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(2)
        .y_label_formatter(&|_| String::new())
        .x_labels(12)
        .x_label_formatter(&|share| format!("{share:.1}"))
        .label_style(("sans-serif", 13))
        .draw()
        .unwrap();
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, f64::from(rows))], BLACK)]).unwrap();
    for (at, (one, share)) in measured.iter().zip(&shares).enumerate() {
        // The first row is the uppermost.
        let y = f64::from(rows) - at as f64 - 0.5;
        let colour = one.row.goal.map_or(PLAIN, |goal| if share.median >= goal { MET } else { MISSED });
        let bar = |from: f64, to: f64, half: f64| [(from, y - half), (to, y + half)];
        chart
            .draw_series([
                Rectangle::new(bar(0.0, share.median, 0.3), colour.mix(0.35).filled()),
                Rectangle::new(bar(share.least, share.most, 0.06), colour.filled()),
                Rectangle::new(bar(share.median - 0.002, share.median + 0.002, 0.3), colour.filled()),
            ])
            .unwrap();
        if let Some(goal) = one.row.goal {
            chart.draw_series([PathElement::new(bar(goal, goal, 0.45), BLACK.stroke_width(2))]).unwrap();
        }
        let style = ("sans-serif", 13).into_font();
        let label = format!("{} {:.2}", name(at as f64), share.median);
        let place = chart.backend_coord(&(0.0, y));
        area.draw(&Text::new(label, (place.0 - NAMES, place.1 - 6), style)).unwrap();
    }
    area.present().unwrap();
}
