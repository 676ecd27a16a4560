//! The results as a page.

use std::fmt::Write;

use portcullis_models::evaluation::Rate;

use super::measure::{Counts, Results};

const HEAD: &str = "\
# What is detected

Made by `PORTCULLIS_DATA=… cargo xtask detection`. Patterns of all families, [our own classifier](model-card.md), and \
what either of them finds; one threshold each, computed from training data; the classifier's by a rule that stood before \
it was trained (three screens for its encoder were scored, and one dropped because of LLM-PIEval's total). Some patterns \
were written or changed, and the classifier was trained anew, after a look at totals for these corpora, so the figures \
are not those of a blind test; of single texts, somebody has looked at the beginnings of some eighty values of the \
secrets that a script once printed, the shapes of a hundred secrets that were missed, some of them whole, and some seventy harmless texts in which one was \
found. The limits of the check for suffixes that an optimiser found (`token-soup`) were chosen among some twenty-five with JailbreakBench's totals in view: expect less of \
other suffixes. In brackets: 95 % confidence intervals (Wilson). [The list of detectors](detectors.md) says what is looked for, and [rivals on the same files](detection-rivals.md) how others \
fare. For any other model, or your own texts: `portcullis classifier eval`.

![Recall and false positives by corpus](detection.svg)

## Injections and jailbreaks

";

pub(super) fn render(results: &Results) -> String {
    let mut page = HEAD.to_owned();
    let (name, threshold) = &results.classifier;
    let _ = writeln!(
        page,
        "The classifier is {name}; from {threshold} on a text counts. It is told how each text came: of the panel, documents, \
         mails and tool outputs as from a tool, requests as from a user. The patterns see the panel both ways.\n"
    );
    page.push_str(
        "| attacks found | | patterns | classifier | together |\n|---|---|---|---|---|\n",
    );
    for set in &results.injection {
        let found = set.recall;
        if found.together.of > 0 {
            let cells = [found.patterns, found.classifier, found.together].map(cell);
            line(
                &mut page,
                &[set.name, set.about, &cells[0], &cells[1], &cells[2]],
            );
        }
    }
    page.push_str("\n| harmless texts found | | patterns | without RFC-001's own | classifier | together |\n|---|---|---|---|---|---|\n");
    for set in &results.injection {
        let found = set.false_positives;
        if found.together.of > 0 {
            let cells = [
                found.patterns,
                set.without_rfc,
                found.classifier,
                found.together,
            ];
            let cells = cells.map(cell);
            line(
                &mut page,
                &[
                    set.name, set.about, &cells[0], &cells[1], &cells[2], &cells[3],
                ],
            );
        }
    }
    page.push_str("\nFalse positives on the panel, by length and by language:\n\n");
    page.push_str("| texts | number | patterns | classifier | together |\n|---|---|---|---|---|\n");
    let by_length = results
        .by_length
        .iter()
        .map(|(name, found)| (*name, *found));
    let by_language = results.by_language.iter();
    let by_language = by_language.map(|(name, found)| (name.as_str(), *found));
    for (name, found) in by_length.chain(by_language) {
        let cells = [found.patterns, found.classifier, found.together].map(Rate::percent);
        let number = found.together.of.to_string();
        line(&mut page, &[name, &number, &cells[0], &cells[1], &cells[2]]);
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
