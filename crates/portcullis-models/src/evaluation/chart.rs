//! Results as pictures: SVG by hand, of few shapes, that reads well on white.

use std::fmt::Write;

use super::curve::{Reliability, Roc, Scored, bin};
use super::rate::Rate;

const GOOD: &str = "#2a7f62";
const BAD: &str = "#c0392b";
const GRID: &str = "#ddd";

const LEFT: f64 = 190.0;
const WIDTH: f64 = 460.0;
const ROW: f64 = 24.0;
const TOP: f64 = 34.0;

/// A rate with its name: a bar, and a whisker for its interval.
#[derive(Debug, Clone, Copy)]
pub struct Bar<'n> {
    /// Of what.
    pub name: &'n str,
    /// How much.
    pub rate: Rate,
    /// Whether more of it is better.
    pub is_recall: bool,
}

/// Recall and false positives, one below the other. Rates of nothing are left out.
pub fn bars(bars: &[Bar<'_>]) -> String {
    let bars: Vec<&Bar<'_>> = bars.iter().filter(|bar| bar.rate.of > 0).collect();
    let height = TOP + ROW * bars.len() as f64 + 20.0;
    let full = LEFT + WIDTH + 70.0;
    let mut svg = open(full, height);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"16\" fill=\"{GOOD}\">recall (more is better)</text>\n\
         <text x=\"{}\" y=\"16\" fill=\"{BAD}\">false positives (fewer is better)</text>",
        LEFT + 180.0
    );
    for percent in [0, 25, 50, 75, 100] {
        let x = LEFT + WIDTH * f64::from(percent) / 100.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{}\" stroke=\"{GRID}\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{percent} %</text>",
            height - 20.0,
            height - 6.0
        );
    }
    for (index, bar) in bars.iter().enumerate() {
        draw_bar(&mut svg, TOP + ROW * index as f64, bar);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_bar(svg: &mut String, y: f64, bar: &Bar<'_>) {
    let (low, high) = bar.rate.interval();
    let colour = if bar.is_recall { GOOD } else { BAD };
    let middle = y + ROW / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
         <line x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\" stroke=\"#222\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{:.1} %</text>",
        LEFT - 8.0,
        middle + 4.0,
        escape(bar.name),
        y + 5.0,
        WIDTH * bar.rate.share(),
        LEFT + WIDTH * low,
        LEFT + WIDTH * high,
        LEFT + WIDTH * high + 6.0,
        middle + 4.0,
        100.0 * bar.rate.share()
    );
}

/// Three pictures beside each other: ROC, where the scores lie, and whether they are probabilities.
pub fn curves(title: &str, scored: &[Scored], threshold: f32) -> String {
    const SIDE: f64 = 240.0;
    const GAP: f64 = 70.0;
    let (full, height) = (3.0 * (SIDE + GAP), SIDE + 110.0);
    let mut svg = open(full, height);
    let _ = writeln!(
        svg,
        "<text x=\"50\" y=\"20\" font-size=\"14\">{}</text>",
        escape(title)
    );
    let panel = |index: f64| Panel {
        x: 50.0 + index * (SIDE + GAP),
        y: 56.0,
        side: SIDE,
    };
    draw_roc(&mut svg, panel(0.0), scored, threshold);
    draw_scores(&mut svg, panel(1.0), scored, threshold);
    draw_reliability(&mut svg, panel(2.0), scored);
    svg.push_str("</svg>\n");
    svg
}

/// A square whose axes go from 0 to 1.
#[derive(Clone, Copy)]
struct Panel {
    x: f64,
    y: f64,
    side: f64,
}

impl Panel {
    fn at(self, x: f64, y: f64) -> (f64, f64) {
        (self.x + self.side * x, self.y + self.side * (1.0 - y))
    }

    fn frame(self, svg: &mut String, title: &str, below: &str) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222\">{}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{below}</text>",
            self.x,
            self.y - 10.0,
            escape(title),
            self.x + self.side / 2.0,
            self.y + self.side + 34.0
        );
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let ((x, top), (left, y)) = (self.at(share, 1.0), self.at(0.0, share));
            let (right, bottom) = self.at(1.0, 0.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {top:.1}V{bottom:.1}M{left:.1} {y:.1}H{right:.1}\" stroke=\"{GRID}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{share}</text>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{share}</text>",
                bottom + 16.0,
                left - 6.0,
                y + 4.0
            );
        }
    }

    fn line(self, svg: &mut String, points: impl Iterator<Item = (f64, f64)>, style: &str) {
        svg.push_str("<polyline fill=\"none\" points=\"");
        for (x, y) in points.map(|(x, y)| self.at(x, y)) {
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(svg, "\" {style}/>");
    }

    fn diagonal(self, svg: &mut String) {
        let ends = [(0.0, 0.0), (1.0, 1.0)].into_iter();
        self.line(svg, ends, "stroke=\"#999\" stroke-dasharray=\"4 4\"");
    }
}

fn draw_roc(svg: &mut String, panel: Panel, scored: &[Scored], threshold: f32) {
    let Some(roc) = Roc::new(scored) else {
        panel.frame(svg, "ROC: needs both kinds of texts", "false positives");
        return;
    };
    let title = format!("ROC: recall (area under it: {:.3})", roc.auc());
    panel.frame(svg, &title, "false positives");
    panel.diagonal(svg);
    let points = roc.points().iter();
    let points = points.map(|point| (point.false_positives.share(), point.recall.share()));
    panel.line(
        svg,
        points,
        &format!("stroke=\"{GOOD}\" stroke-width=\"2\""),
    );
    let chosen = roc.points().iter().rev();
    if let Some(chosen) = chosen.clone().find(|point| point.threshold >= threshold) {
        let (x, y) = panel.at(chosen.false_positives.share(), chosen.recall.share());
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{BAD}\"/>"
        );
    }
}

/// How many texts of each kind have which score, each kind as a share of itself.
fn draw_scores(svg: &mut String, panel: Panel, scored: &[Scored], threshold: f32) {
    const BINS: usize = 20;
    panel.frame(svg, "Scores: share of the texts of a kind", "score");
    let mut counts = [[0_usize; BINS]; 2];
    for one in scored {
        counts[usize::from(one.positive)][bin(one.score, BINS)] += 1;
    }
    for (counts, colour) in counts.iter().zip([GOOD, BAD]) {
        let all = counts.iter().sum::<usize>().max(1);
        for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let share = count as f64 / all as f64;
            let (x, y) = panel.at(bin as f64 / BINS as f64, share);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\" fill-opacity=\"0.55\"/>",
                panel.side / BINS as f64,
                panel.side * share
            );
        }
    }
    let at = f64::from(threshold.clamp(0.0, 1.0));
    let style = "stroke=\"#222\" stroke-dasharray=\"2 3\"";
    panel.line(svg, [(at, 0.0), (at, 1.0)].into_iter(), style);
    let threshold = format!("threshold {threshold:.3}");
    for (across, text, colour) in [
        (8.0, "to pass", GOOD),
        (64.0, "to be found", BAD),
        (142.0, &threshold, "#222"),
    ] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{colour}\">{text}</text>",
            panel.x + across,
            panel.y + 16.0
        );
    }
}

fn draw_reliability(svg: &mut String, panel: Panel, scored: &[Scored]) {
    let curve = Reliability::new(scored);
    let title = format!("Reliability (calibration error: {:.3})", curve.error);
    panel.frame(svg, &title, "mean score; upwards: share to be found");
    panel.diagonal(svg);
    let filled = || curve.bins.iter().filter(|bin| bin.positives.of > 0);
    let points = filled().map(|bin| (bin.mean_score, bin.positives.share()));
    panel.line(
        svg,
        points,
        &format!("stroke=\"{GOOD}\" stroke-width=\"2\""),
    );
    for bin in filled() {
        let (low, high) = bin.positives.interval();
        let ((x, top), (_, bottom)) = (panel.at(bin.mean_score, high), panel.at(0.0, low));
        let (_, y) = panel.at(0.0, bin.positives.share());
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#222\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{GOOD}\"/>"
        );
    }
}

fn open(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_drawn_of_anything() {
        let one = |score, positive| Scored { score, positive };
        for scored in [
            vec![],
            vec![one(0.5, true)],
            vec![one(0.9, true), one(0.1, false), one(0.4, true)],
        ] {
            let svg = curves("a < b", &scored, 0.5);
            assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }

    #[test]
    fn rates_of_nothing_have_no_bar() {
        let bar = |name, hits, of| Bar {
            name,
            rate: Rate { hits, of },
            is_recall: true,
        };
        let svg = bars(&[bar("one", 1, 2), bar("none", 0, 0)]);
        assert!(svg.contains(">one<") && !svg.contains(">none<"));
    }
}
