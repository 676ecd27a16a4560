//! Labelled texts from JSON Lines or CSV.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use portcullis_models::Example;
use serde_json::Value;

/// Which fields hold what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) text: &'a str,
    pub(super) label: &'a str,
}

/// An example and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) example: Example,
    pub(super) file: String,
    /// From 1.
    pub(super) line: usize,
}

/// Reads a file by what its name says it is.
pub(super) fn read(path: &Path, fields: Fields<'_>) -> Result<Vec<Found>> {
    let name = path.display().to_string();
    ensure!(
        path.extension().is_none_or(|extension| extension != "gz"),
        "{name}: training takes .jsonl and .csv: gunzip it first"
    );
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let text = text.trim_start_matches('\u{feff}');
    let extension = path.extension().and_then(|extension| extension.to_str());
    let rows = match extension {
        Some("jsonl" | "ndjson") => json_lines(text, fields),
        Some("csv") => csv(text, fields),
        _ => bail!("{name}: expected a name that ends in .jsonl or .csv"),
    };
    let rows = rows.with_context(|| name.clone())?;
    let mut found = Vec::with_capacity(rows.len());
    for (line, text, label) in rows {
        for (field, value) in [(fields.text, &text), (fields.label, &label)] {
            ensure!(
                !value.trim().is_empty(),
                "{name}, line {line}: `{field}` is empty: fill it in, or remove the line"
            );
        }
        found.push(Found {
            example: Example { text, label },
            file: name.clone(),
            line,
        });
    }
    Ok(found)
}

type Row = (usize, String, String);

fn json_lines(text: &str, fields: Fields<'_>) -> Result<Vec<Row>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let line_number = index + 1;
            let row: serde_json::Map<String, Value> = serde_json::from_str(line)
                .with_context(|| format!("line {line_number} is not a JSON object"))?;
            let field = |name: &str, option: &str| match row.get(name) {
                Some(Value::String(text)) => Ok(text.clone()),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
                Some(_) => bail!("line {line_number}: `{name}` is not a text"),
                None => bail!("line {line_number} has no field `{name}`: add it, or name another with {option}"),
            };
            let text = field(fields.text, "--text-field")?;
            let label = field(fields.label, "--label-field")?;
            Ok((line_number, text, label.trim().to_owned()))
        })
        .collect()
}

fn csv(text: &str, fields: Fields<'_>) -> Result<Vec<Row>> {
    let mut records = records(text)?.into_iter();
    let (_, header) = records.next().context("the file is empty")?;
    let column = |name: &str, option: &str| {
        header.iter().position(|one| one.trim() == name).with_context(|| {
            let found = header.join(", ");
            let found: String = found.chars().take(80).collect();
            format!(
                "the first line has no column `{name}`, but: {found}. A CSV begins with the names of its columns; \
                 {option} names another"
            )
        })
    };
    let (text_at, label_at) = (
        column(fields.text, "--text-field")?,
        column(fields.label, "--label-field")?,
    );
    records
        .map(|(line, mut record)| {
            ensure!(
                record.len() == header.len(),
                "line {line} has {} columns, the first has {}: put texts with commas in quotes",
                record.len(),
                header.len()
            );
            let (text, label) = (
                std::mem::take(&mut record[text_at]),
                record[label_at].trim().to_owned(),
            );
            Ok((line, text, label))
        })
        .collect()
}

/// The records of a CSV file (RFC 4180), each with the line it begins on. Blank lines are none.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>> {
    let mut records = Vec::new();
    let (mut record, mut field) = (Vec::new(), String::new());
    let (mut line, mut begun) = (1, 1);
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                let full = std::mem::take(&mut record);
                if full != [""] {
                    records.push((begun, full));
                }
                begun = line;
            }
            other => field.push(other),
        }
    }
    ensure!(
        !quoted,
        "the quote that opens on or after line {begun} is not closed"
    );
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push((begun, record));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: Fields<'static> = Fields {
        text: "text",
        label: "label",
    };

    fn row(line: usize, text: &str, label: &str) -> Row {
        (line, text.to_owned(), label.to_owned())
    }

    #[test]
    fn csv_with_quotes_commas_and_lines_inside() {
        let text = "label,text\r\na,plain\r\n\r\nb,\"with, comma\"\nc,\"two\nlines and \"\"quotes\"\"\"\nd,last";
        let expected = [
            row(2, "plain", "a"),
            row(4, "with, comma", "b"),
            row(5, "two\nlines and \"quotes\"", "c"),
            row(7, "last", "d"),
        ];
        assert_eq!(csv(text, FIELDS).unwrap(), expected);
    }

    #[test]
    fn bad_files_are_refused_with_the_line() {
        type Read = fn(&str, Fields<'_>) -> Result<Vec<Row>>;
        let cases: &[(Read, &str, &str)] = &[
            (csv, "", "the file is empty"),
            (
                csv,
                "hello,x\nother,y\n",
                "the first line has no column `text`, but: hello, x. A CSV begins with the names of its columns; --text-field names another",
            ),
            (csv, "text\nother\n", "no column `label`"),
            (
                csv,
                "text,label\na,b,c\n",
                "line 2 has 3 columns, the first has 2",
            ),
            (csv, "text,label\n\"a,b\n", "is not closed"),
            (
                json_lines,
                "{\"text\":\"a\",\"label\":\"b\"}\nx",
                "line 2 is not a JSON object",
            ),
            (
                json_lines,
                "{\"text\":\"a\"}",
                "line 1 has no field `label`: add it, or name another with --label-field",
            ),
            (
                json_lines,
                "{\"text\":[],\"label\":\"b\"}",
                "line 1: `text` is not a text",
            ),
        ];
        for (read, text, expected) in cases {
            let error = format!("{:#}", read(text, FIELDS).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn spaces_around_labels_do_not_count() {
        let json = json_lines("{\"text\":\" a \",\"label\":\" b\\n\"}", FIELDS);
        let csv = csv("text,label\n a , b \n", FIELDS);
        assert_eq!(json.unwrap(), [row(1, " a ", "b")]);
        assert_eq!(csv.unwrap(), [row(2, " a ", "b")]);
    }

    #[test]
    fn labels_may_be_numbers() {
        let rows = json_lines(
            "{\"text\":\"a\",\"label\":1}\n\n{\"text\":\"b\",\"label\":true}",
            FIELDS,
        );
        assert_eq!(rows.unwrap(), [row(1, "a", "1"), row(3, "b", "true")]);
    }

    proptest! {
        /// What is written with every field in quotes comes back.
        #[test]
        fn quoted_fields_come_back(rows in prop::collection::vec(("[a-c\",\n\r é]{0,8}", "[a-c\"]{1,4}"), 0..6)) {
            let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
            let mut text = "text,label\n".to_owned();
            for (one, label) in &rows {
                text.extend([&quote(one), ",", &quote(label), "\n"]);
            }
            let read: Vec<(String, String)> = csv(&text, FIELDS).unwrap().into_iter().map(|(_, a, b)| (a, b)).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a\",\n\r]{0,40}") {
            let _ = csv(&format!("text,label\n{text}"), FIELDS);
        }
    }
}
