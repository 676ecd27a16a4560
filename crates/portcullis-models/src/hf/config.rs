//! What `config.json` says of a classifier, whatever its family.

use std::fmt;
use std::path::Path;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Paths, deberta, modernbert};
use crate::bert::BertConfig;
use crate::load::{LoadError, parse};
use crate::numeric::Activation;
use crate::tensors::Tensors;

/// More are no classifier.
const MOST_LABELS: usize = 1 << 12;

pub(super) struct Config {
    pub(super) family: Family,
    pub(super) labels: Vec<String>,
    pub(super) is_exclusive: bool,
}

pub(super) enum Family {
    Bert(BertConfig),
    DeBerta(deberta::Config),
    ModernBert(modernbert::Config),
}

#[derive(Deserialize)]
struct File {
    model_type: String,
    id2label: Option<Labels>,
    num_labels: Option<usize>,
    problem_type: Option<String>,
}

/// Numbers and names in the order in which they are written, so that none is lost that is there twice.
struct Labels(Vec<(String, String)>);

impl Config {
    /// `path` is where the text comes from, for errors.
    pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Self, LoadError> {
        let unusable = |why: String| LoadError::unusable(path, why);
        let file: File = parse(path, text)?;
        let family = match file.model_type.as_str() {
            "bert" => Family::Bert(BertConfig::parse(path, text)?),
            "deberta-v2" => {
                let file = parse(path, text)?;
                Family::DeBerta(deberta::Config::from_file(&file).map_err(unusable)?)
            }
            "modernbert" => {
                let file = parse(path, text)?;
                Family::ModernBert(modernbert::Config::from_file(&file).map_err(unusable)?)
            }
            other => {
                return Err(unusable(format!(
                    "`model_type` is `{other}`: only `bert`, `deberta-v2` and `modernbert` are understood"
                )));
            }
        };
        let labels = labels(file.id2label, file.num_labels).map_err(unusable)?;
        let is_exclusive = match file.problem_type.as_deref() {
            Some("multi_label_classification") => false,
            // One number says yes or no.
            None | Some("single_label_classification") => labels.len() > 1,
            Some(other) => {
                return Err(unusable(format!(
                    "`problem_type` is `{other}`: only `single_label_classification` and \
                     `multi_label_classification` are understood"
                )));
            }
        };
        Ok(Self {
            family,
            labels,
            is_exclusive,
        })
    }

    pub(super) fn hidden(&self) -> usize {
        match &self.family {
            Family::Bert(family) => family.sizes.hidden,
            Family::DeBerta(family) => family.sizes.hidden,
            Family::ModernBert(family) => family.sizes.hidden,
        }
    }

    pub(super) fn vocabulary(&self) -> usize {
        match &self.family {
            Family::Bert(family) => family.vocabulary,
            Family::DeBerta(family) => family.vocabulary,
            Family::ModernBert(family) => family.vocabulary,
        }
    }

    /// The longest text that the model takes.
    pub(super) fn positions(&self) -> usize {
        match &self.family {
            Family::Bert(family) => family.positions,
            Family::DeBerta(family) => family.positions,
            Family::ModernBert(family) => family.positions,
        }
    }

    /// There are as many labels as the head has rows.
    pub(super) fn check_labels(
        &self,
        paths: &Paths,
        tensors: &Tensors<'_>,
    ) -> Result<(), LoadError> {
        let Some(shape) = tensors.shape("classifier.weight") else {
            let why = "`classifier.weight` is missing: it is no model of sequence classification";
            return Err(LoadError::unusable(&paths.weights, why));
        };
        let (rows, labels) = (
            shape.first().copied().unwrap_or_default(),
            self.labels.len(),
        );
        if rows != labels {
            let why =
                format!("`id2label` has {labels} labels, but `classifier.weight` has {rows} rows");
            return Err(LoadError::unusable(&paths.config, why));
        }
        Ok(())
    }
}

impl Family {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bert(_) => "bert",
            Self::DeBerta(_) => "deberta-v2",
            Self::ModernBert(_) => "modernbert",
        }
    }
}

/// A field that names a function.
pub(super) fn activation(field: &str, name: &str) -> Result<Activation, String> {
    Activation::of_name(name).ok_or_else(|| {
        format!("`{field}` is `{name}`: only `gelu`, `relu` and `tanh` are understood")
    })
}

/// By their numbers. Two without names where the file says nothing, as in transformers.
fn labels(named: Option<Labels>, count: Option<usize>) -> Result<Vec<String>, String> {
    let Some(Labels(named)) = named else {
        let count = count.unwrap_or(2);
        if !(1..=MOST_LABELS).contains(&count) {
            return Err(format!(
                "`num_labels` is {count}: it must be 1 to {MOST_LABELS}"
            ));
        }
        return Ok((0..count).map(|number| format!("LABEL_{number}")).collect());
    };
    if !(1..=MOST_LABELS).contains(&named.len()) {
        let found = named.len();
        return Err(format!(
            "`id2label` has {found} labels: it must be 1 to {MOST_LABELS}"
        ));
    }
    let mut labels: Vec<Option<String>> = vec![None; named.len()];
    for (number, label) in named {
        let most = labels.len() - 1;
        let place = number
            .parse()
            .ok()
            .and_then(|number: usize| labels.get_mut(number));
        match place {
            Some(place @ None) => *place = Some(label),
            Some(Some(_)) => return Err(format!("`id2label` has {number} twice")),
            None => {
                return Err(format!(
                    "`id2label` has `{number}`: its numbers must be 0 to {most}, without gaps"
                ));
            }
        }
    }
    let labels: Vec<String> = labels.into_iter().flatten().collect();
    for (number, label) in labels.iter().enumerate() {
        if labels[..number].contains(label) {
            return Err(format!("`id2label` has two labels `{label}`"));
        }
    }
    Ok(labels)
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels by their numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Labels(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_in_the_order_of_their_numbers_or_not_at_all() {
        for (text, expected) in [
            ("{}", Ok("LABEL_0 LABEL_1")),
            (r#"{"num_labels": 3}"#, Ok("LABEL_0 LABEL_1 LABEL_2")),
            (r#"{"id2label": {"1": "b", "0": "a"}}"#, Ok("a b")),
            (
                r#"{"id2label": {"0": "a", "2": "b"}}"#,
                Err("`id2label` has `2`: its numbers must be 0 to 1, without gaps"),
            ),
            (
                r#"{"id2label": {"0": "a", "x": "b"}}"#,
                Err("`id2label` has `x`: its numbers must be 0 to 1, without gaps"),
            ),
            (
                r#"{"id2label": {"0": "a", "0": "b"}}"#,
                Err("`id2label` has 0 twice"),
            ),
            (
                r#"{"id2label": {"0": "a", "1": "a"}}"#,
                Err("`id2label` has two labels `a`"),
            ),
            (
                r#"{"id2label": {}}"#,
                Err("`id2label` has 0 labels: it must be 1 to 4096"),
            ),
            (
                r#"{"num_labels": 0}"#,
                Err("`num_labels` is 0: it must be 1 to 4096"),
            ),
        ] {
            #[derive(Deserialize)]
            struct Part {
                id2label: Option<Labels>,
                num_labels: Option<usize>,
            }
            let part: Part = serde_json::from_str(text).unwrap();
            let found = labels(part.id2label, part.num_labels).map(|labels| labels.join(" "));
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{text}");
        }
    }
}
