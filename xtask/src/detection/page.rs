//! The results as a page.

use std::fmt::Write;

use super::measure::{Counts, Results};
use super::rate::Rate;

const HEAD: &str = "\
# What is detected

Made by `PORTCULLIS_DATA=… cargo xtask detection`. Patterns alone, all families, one threshold that was \
fixed on training data. Some patterns were written or changed after a look at totals for these corpora, so \
the figures are not those of a blind test; single texts were not looked at. In brackets: 95 % confidence \
intervals (Wilson). [The list of detectors](detectors.md) says what is looked for.

![Recall and false positives by corpus](detection.svg)

## Injections and jailbreaks

| corpus | | recall | false positives | the same without RFC-001's own patterns |
|---|---|---|---|---|
";

pub(super) fn render(results: &Results) -> String {
    let mut page = HEAD.to_owned();
    for set in &results.injection {
        let (recall, wrong) = (cell(set.recall), cell(set.false_positives));
        let ours = cell(set.without_rfc);
        line(&mut page, &[set.name, set.about, &recall, &wrong, &ours]);
    }
    page.push_str("\nFalse positives on the panel, by length and by language:\n\n");
    page.push_str("| texts | number | false positives |\n|---|---|---|\n");
    let by_length = results.by_length.iter().map(|(name, rate)| (*name, *rate));
    let by_language = results.by_language.iter();
    let by_language = by_language.map(|(name, rate)| (name.as_str(), *rate));
    for (name, rate) in by_length.chain(by_language) {
        line(&mut page, &[name, &rate.of.to_string(), &rate.percent()]);
    }
    page.push_str("\n## Secrets\n\n| | |\n|---|---|\n");
    line(&mut page, &["recall", &results.secrets.recall().percent()]);
    line(
        &mut page,
        &["precision", &results.secrets.precision().percent()],
    );
    let panel = results.secrets_on_panel.percent();
    line(
        &mut page,
        &["texts of the panel in which one is found", &panel],
    );
    page.push_str("\n## Personal data\n\nSpans by type; a span is found if a finding of its type overlaps it.\n\n");
    page.push_str("| type | recall | precision | F1 |\n|---|---|---|---|\n");
    let mut all = Counts::default();
    for (name, counts) in &results.pii {
        pii_line(&mut page, name, *counts);
        all.found_right += counts.found_right;
        all.found_wrong += counts.found_wrong;
        all.missed += counts.missed;
    }
    pii_line(&mut page, "all of these", all);
    page
}

fn pii_line(page: &mut String, name: &str, counts: Counts) {
    let (recall, precision) = (counts.recall().percent(), counts.precision().percent());
    line(
        page,
        &[name, &recall, &precision, &format!("{:.3}", counts.f1())],
    );
}

fn cell(rate: Rate) -> String {
    if rate.of == 0 {
        return "–".to_owned();
    }
    format!("{} of {}", rate.percent(), rate.of)
}

fn line(page: &mut String, cells: &[&str]) {
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
