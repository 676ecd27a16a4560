//! The results as a picture: a bar for each rate, a whisker for its interval.

use std::fmt::Write;

use super::measure::InjectionSet;
use super::rate::Rate;

const LEFT: f64 = 190.0;
const WIDTH: f64 = 460.0;
const ROW: f64 = 24.0;
const TOP: f64 = 34.0;

pub(super) fn render(sets: &[InjectionSet]) -> String {
    let bars: Vec<(&str, Rate, &str)> = sets
        .iter()
        .flat_map(|set| {
            [
                (set.name, set.recall, "#2a7f62"),
                (set.name, set.false_positives, "#c0392b"),
            ]
        })
        .filter(|(_, rate, _)| rate.of > 0)
        .collect();
    let height = TOP + ROW * bars.len() as f64 + 20.0;
    let full = LEFT + WIDTH + 70.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{full}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"16\" fill=\"#2a7f62\">recall (more is better)</text>\n\
         <text x=\"{}\" y=\"16\" fill=\"#c0392b\">false positives (fewer is better)</text>\n",
        LEFT + 180.0
    );
    for percent in [0, 25, 50, 75, 100] {
        let x = LEFT + WIDTH * f64::from(percent) / 100.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{}\" stroke=\"#ddd\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{percent} %</text>",
            height - 20.0,
            height - 6.0
        );
    }
    for (index, (name, rate, colour)) in bars.iter().enumerate() {
        bar(&mut svg, TOP + ROW * index as f64, name, *rate, colour);
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, y: f64, name: &str, rate: Rate, colour: &str) {
    let (low, high) = rate.interval();
    let middle = y + ROW / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
         <line x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\" stroke=\"#222\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{:.1} %</text>",
        LEFT - 8.0,
        middle + 4.0,
        y + 5.0,
        WIDTH * rate.share(),
        LEFT + WIDTH * low,
        LEFT + WIDTH * high,
        LEFT + WIDTH * high + 6.0,
        middle + 4.0,
        100.0 * rate.share()
    );
}
