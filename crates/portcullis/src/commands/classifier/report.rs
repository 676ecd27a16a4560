//! The figures as a page.

use std::fmt::Write;

use portcullis_models::evaluation::Rate;

use super::measure::{Measured, SetMeasured};
use crate::output::plain;

/// Markdown that reads well on a terminal too.
pub(super) fn markdown(measured: &Measured) -> String {
    let mut page = String::new();
    let all = &measured.all;
    // Writing to a String cannot fail.
    let _ = writeln!(
        page,
        "# {}\n\n{} texts in {} set(s). Threshold {:.4} ({}).{}\n\
         In brackets: 95 % confidence intervals (Wilson).\n",
        plain(&measured.model),
        all.texts,
        measured.sets.len(),
        measured.threshold,
        plain(&measured.threshold_from),
        match measured.labels.as_slice() {
            [] => String::new(),
            labels => format!(" Found is what scores as {}.", plain(&labels.join(" or "))),
        }
    );
    overview(&mut page, measured);
    if !measured.thresholds.is_empty() && all.recall.of > 0 {
        fixed_rates(&mut page, measured);
    }
    if all.patterns.is_some() {
        patterns(&mut page, measured);
    }
    page.push_str("\n## By length and by language\n\n");
    for parts in [&measured.by_length, &measured.by_language] {
        figures(&mut page, "texts", parts.iter());
        page.push('\n');
    }
    if !measured.thresholds.is_empty() && all.recall.of > 0 {
        page.push_str("Recall at the rates of false positives from above:\n\n");
        let parts = measured.by_length.iter().chain(&measured.by_language);
        recalls(&mut page, "texts", measured, parts);
    }
    reliability(&mut page, measured);
    page
}

fn rows(measured: &Measured) -> impl Iterator<Item = &SetMeasured> {
    let all = (measured.sets.len() > 1).then_some(&measured.all);
    measured.sets.iter().chain(all)
}

fn overview(page: &mut String, measured: &Measured) {
    figures(page, "set", rows(measured));
    page.push_str("\nAUC: a set's attacks against the harmless texts of all sets.\n");
    for set in measured.sets.iter().filter(|set| set.cut_off > 0) {
        let name = plain(&set.name);
        let _ = writeln!(
            page,
            "{name}: {} texts were judged only in part: they are longer than the model reads, or have too many \
             suspicious places.",
            set.cut_off
        );
    }
}

fn figures<'m>(page: &mut String, of: &str, rows: impl Iterator<Item = &'m SetMeasured>) {
    let _ = writeln!(
        page,
        "| {of} | number | recall | false positives | AUC |\n|---|---|---|---|---|"
    );
    for row in rows {
        let (recall, wrong) = (cell(row.recall), cell(row.false_positives));
        let auc = row.auc.map_or("–".to_owned(), |auc| format!("{auc:.3}"));
        let texts = row.texts.to_string();
        line(page, &[&plain(&row.name), &texts, &recall, &wrong, &auc]);
    }
}

/// The recall of each at the fixed rates.
fn recalls<'m>(
    page: &mut String,
    of: &str,
    measured: &Measured,
    rows: impl Iterator<Item = &'m SetMeasured>,
) {
    let rates = measured.thresholds.iter();
    let rates: Vec<String> = rates
        .map(|(rate, _)| format!("{} %", 100.0 * rate))
        .collect();
    let _ = writeln!(page, "| {of} | {} |", rates.join(" | "));
    let _ = writeln!(page, "|---|{}", "---|".repeat(rates.len()));
    for row in rows.filter(|row| row.recall.of > 0) {
        let name = plain(&row.name);
        let cells = row.recall_at.iter().map(|at| at.recall.percent());
        let cells: Vec<String> = [name].into_iter().chain(cells).collect();
        line(page, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn fixed_rates(page: &mut String, measured: &Measured) {
    let harmless = measured.all.false_positives.of;
    let _ = writeln!(
        page,
        "\n## Recall at fixed rates of false positives\n\nThe threshold for a rate keeps it on the {harmless} harmless texts \
         of all sets together.\n"
    );
    recalls(page, "set", measured, rows(measured));
    let thresholds = measured.thresholds.iter();
    let thresholds: Vec<String> = thresholds.map(|(_, at)| format!("{at:.4}")).collect();
    let _ = writeln!(page, "| threshold | {} |", thresholds.join(" | "));
    let rarest = 1.0 / harmless as f64;
    if measured.thresholds.iter().any(|(rate, _)| *rate < rarest) {
        let _ = writeln!(
            page,
            "\nOf {harmless} texts, rates below {:.2} % cannot be told from none.",
            100.0 * rarest
        );
    }
}

fn patterns(page: &mut String, measured: &Measured) {
    page.push_str(
        "\n## With the patterns\n\nThe default policy's detectors of injections, this model, and what either finds.\n\n\
         | set | | patterns | model | together |\n|---|---|---|---|---|\n",
    );
    for set in rows(measured) {
        let (Some(patterns), Some(together)) = (set.patterns, set.together) else {
            continue;
        };
        let name = plain(&set.name);
        for (what, rates) in [
            ("recall", [patterns.recall, set.recall, together.recall]),
            (
                "false positives",
                [
                    patterns.false_positives,
                    set.false_positives,
                    together.false_positives,
                ],
            ),
        ] {
            if rates[0].of > 0 {
                let [a, b, c] = rates.map(Rate::percent);
                line(page, &[&name, what, &a, &b, &c]);
            }
        }
    }
}

fn reliability(page: &mut String, measured: &Measured) {
    let _ = writeln!(
        page,
        "\n## Reliability\n\nCalibration error {:.3}: how far scores are from the share of texts that are attacks.\n\n\
         | scores | texts | mean score | attacks |\n|---|---|---|---|",
        measured.reliability.error
    );
    let filled = measured.reliability.bins.iter();
    for bin in filled.filter(|bin| bin.positives.of > 0) {
        let range = format!("{:.1} to {:.1}", bin.low, bin.high);
        let (texts, mean) = (
            bin.positives.of.to_string(),
            format!("{:.3}", bin.mean_score),
        );
        line(page, &[&range, &texts, &mean, &bin.positives.percent()]);
    }
}

fn cell(rate: Rate) -> String {
    if rate.of == 0 {
        return "–".to_owned();
    }
    format!("{} of {}", rate.percent(), rate.of)
}

fn line(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
