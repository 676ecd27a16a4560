//! `${VAR}` in the values of a configuration file.
//!
//! It is filled in after the YAML is read, so a variable's value is a value, whatever is in it: it cannot
//! add keys, and the places of everything else stay true.

use portcullis_core::pack::diagnostic::{Diagnostics, Place};
use portcullis_core::pack::yaml::{Node, Yaml};

/// Fills in every variable below this node. One that is not set is an error at its place.
pub(super) fn substitute(
    node: &mut Node,
    variable: &dyn Fn(&str) -> Option<String>,
    d: &mut Diagnostics,
) {
    walk(node, "", variable, d);
}

fn walk(
    node: &mut Node,
    key: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    d: &mut Diagnostics,
) {
    let place = node.place;
    match &mut node.yaml {
        Yaml::Text(text) if text.contains("${") => {
            if let Some(filled) = fill(text, key, place, variable, d) {
                *text = filled;
            }
        }
        Yaml::List(items) => {
            for item in items {
                walk(item, key, variable, d);
            }
        }
        Yaml::Map(entries) => {
            for (name, value) in entries {
                walk(value, &name.name, variable, d);
            }
        }
        _ => {}
    }
}

fn fill(
    text: &str,
    key: &str,
    place: Place,
    variable: &dyn Fn(&str) -> Option<String>,
    d: &mut Diagnostics,
) -> Option<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            d.error(place, format!("`{key}` has a `${{` that is never closed"))
                .help("write the variable as ${NAME}");
            return None;
        };
        if !is_name(name) {
            d.error(
                place,
                format!("`{key}` refers to `${{{name}}}`, which no variable can be called"),
            )
            .help("a variable's name has letters, digits and `_`, and does not start with a digit");
            return None;
        }
        let Some(value) = variable(name) else {
            d.error(
                place,
                format!("`{key}` needs the environment variable `{name}`, which is not set"),
            )
            .help(format!("set it before starting: export {name}=…"));
            return None;
        };
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    Some(filled)
}

/// Whether a variable can be called this.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
