//! The older form's conditions and requirements: a field, and what its value must be.

use serde::Serialize;

use super::action::ProposedAction;
use super::condition::Order;
use super::value::{Field, Name, Val};
use crate::pack::diagnostic::Diagnostics;
use crate::pack::yaml::{Key, Node, Yaml};

/// One `condition_X` or `requires_X`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause {
    pub(super) field: Name,
    pub(super) test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// One of these; usually there is one.
    Equals(Vec<Scalar>),
    Differs(Scalar),
    Ordered(Order, f64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Scalar {
    Bool(bool),
    Int(i64),
    Number(f64),
    Text(String),
}

/// Why a clause cannot tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotANumber<'c> {
    field: &'c str,
    found: &'static str,
}

impl std::fmt::Display for NotANumber<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, found } = self;
        write!(f, "`{field}` is {found}, and a number is needed")
    }
}

impl Clause {
    /// Reads one. What has no meaning is reported.
    pub(super) fn read(key: &Key, field: &str, node: &Node, d: &mut Diagnostics) -> Option<Self> {
        if field.trim().is_empty() {
            d.error(key.place, format!("`{}` names no field", key.name))
                .help("write the name after it: `condition_stakes`, `requires_code_review`");
            return None;
        }
        let test = match &node.yaml {
            Yaml::Text(text) => comparison(text, field, node, d)?,
            Yaml::List(items) => {
                let values: Vec<Scalar> = items
                    .iter()
                    .filter_map(|item| scalar(item, &key.name, d))
                    .collect();
                if items.is_empty() {
                    d.error(node.place, format!("`{}` lists nothing", key.name))
                        .help("no value is one of none: list some, or leave the key out");
                }
                Test::Equals(values)
            }
            _ => Test::Equals(vec![scalar(node, &key.name, d)?]),
        };
        Some(Self {
            field: Name::new(field),
            test,
        })
    }

    /// Whether the field is there and its value is as the clause says.
    pub(super) fn matches<'c>(&'c self, action: &ProposedAction) -> Result<bool, NotANumber<'c>> {
        let Some(value) = self.field.of(action) else {
            return Ok(false);
        };
        match &self.test {
            Test::Equals(values) => Ok(values.iter().any(|one| one.value().equals(value))),
            Test::Differs(from) => Ok(!from.value().equals(value)),
            Test::Ordered(order, bound) => match value.order(Val::Double(*bound)) {
                Some(found) => Ok(order.holds(found)),
                None => Err(NotANumber {
                    field: &self.field.written,
                    found: value.kind(),
                }),
            },
        }
    }
}

impl Scalar {
    fn value(&self) -> Val<'_> {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(n) => Val::Int(*n),
            Self::Number(n) => Val::Double(*n),
            Self::Text(text) => Val::Text(text),
        }
    }

    /// What a comparison is made with: a number, `true`, `false`, or a text, in quotes if it would
    /// be one of these.
    fn parse(text: &str) -> Self {
        let quoted = ['"', '\'']
            .into_iter()
            .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
        match (quoted, text) {
            (Some(text), _) => Self::Text(text.to_owned()),
            (None, "true") => Self::Bool(true),
            (None, "false") => Self::Bool(false),
            (None, text) => match (text.parse(), number(text)) {
                (Ok(whole), _) => Self::Int(whole),
                (_, Some(number)) => Self::Number(number),
                _ => Self::Text(text.to_owned()),
            },
        }
    }
}

fn scalar(node: &Node, key: &str, d: &mut Diagnostics) -> Option<Scalar> {
    match &node.yaml {
        Yaml::Bool(b) => Some(Scalar::Bool(*b)),
        Yaml::Int(n) => Some(Scalar::Int(*n)),
        Yaml::Float(n) => Some(Scalar::Number(*n)),
        Yaml::Text(text) => Some(Scalar::Text(text.clone())),
        Yaml::Null | Yaml::List(_) | Yaml::Map(_) => {
            let message = format!(
                "`{key}` must be a value to compare with, not {}",
                node.kind()
            );
            d.error(node.place, message)
                .help("to look inside an object, write `a.b` for the field");
            None
        }
    }
}

/// A text as a test: a comparison if it begins like one, else the text itself.
fn comparison(text: &str, field: &str, node: &Node, d: &mut Diagnostics) -> Option<Test> {
    let trimmed = text.trim();
    let sign = ["<=", ">=", "==", "!=", "<", ">", "="]
        .into_iter()
        .find(|sign| trimmed.starts_with(sign));
    let Some(sign) = sign else {
        return Some(Test::Equals(vec![Scalar::Text(text.to_owned())]));
    };
    let order = match sign {
        "<" => Some(Order::Less),
        "<=" => Some(Order::LessOrEqual),
        ">" => Some(Order::Greater),
        ">=" => Some(Order::GreaterOrEqual),
        _ => None,
    };
    let operand = trimmed[sign.len()..].trim();
    let message = format!("`{text}` is not a comparison");
    if operand.is_empty() || operand.starts_with(['<', '>', '=']) || sign == "=" {
        d.error(node.place, message)
            .help("write one of < <= > >= == != and what to compare with, such as `< 0.5`");
        return None;
    }
    match (order, number(operand)) {
        (Some(order), Some(bound)) => Some(Test::Ordered(order, bound)),
        (Some(_), None) => {
            let help = if Name::new(field).is(Field::Stakes) {
                "list the stakes that are meant: [high, critical]".to_owned()
            } else {
                format!("`{sign}` compares numbers")
            };
            d.error(node.place, message).help(help);
            None
        }
        (None, _) if sign == "!=" => Some(Test::Differs(Scalar::parse(operand))),
        (None, _) => Some(Test::Equals(vec![Scalar::parse(operand)])),
    }
}

fn number(text: &str) -> Option<f64> {
    // `inf` and `nan` are numbers to Rust, and to nobody who writes a policy.
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    text.parse::<f64>()
        .ok()
        .filter(|number| plain && number.is_finite())
}

/// As people read it, and as the digest takes it: values are written as JSON, so that `3` and
/// `"3"` differ.
impl std::fmt::Display for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let field = &self.field.written;
        match &self.test {
            Test::Equals(values) => match &**values {
                [one] => write!(f, "{field} == {one}"),
                many => {
                    write!(f, "{field} in [")?;
                    for (index, one) in many.iter().enumerate() {
                        let comma = if index > 0 { ", " } else { "" };
                        write!(f, "{comma}{one}")?;
                    }
                    f.write_str("]")
                }
            },
            Test::Differs(from) => write!(f, "{field} != {from}"),
            Test::Ordered(order, bound) => {
                let sign = match order {
                    Order::Less => "<",
                    Order::LessOrEqual => "<=",
                    Order::Greater => ">",
                    Order::GreaterOrEqual => ">=",
                };
                write!(f, "{field} {sign} {bound}")
            }
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Number(n) => write!(f, "{n:?}"),
            Self::Text(text) => write!(f, "{}", serde_json::Value::from(text.as_str())),
        }
    }
}
