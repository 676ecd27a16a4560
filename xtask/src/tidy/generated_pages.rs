//! The pages and schemas under `docs/` that are written from the code. They are committed, for reading on the
//! web, and held to their source here.

use portcullis_core::{a2a, reference};

use super::Finding;

/// Every generated page: its path and what it must say.
pub(crate) fn all() -> Vec<(String, String)> {
    let pages = [
        ("rules.md", reference::rules_page()),
        ("error-codes.md", reference::error_codes_page()),
        ("detectors.md", reference::detectors_page()),
    ];
    let pages = pages.map(|(name, text)| (format!("docs/{name}"), text));
    let schemas = a2a::schemas();
    let schemas = schemas.map(|(name, text)| (format!("docs/schemas/{name}"), text));
    pages.into_iter().chain(schemas).collect()
}

/// `found` is the text of the committed file, if there is one.
pub(super) fn check(expected: &str, found: Option<&str>) -> Vec<Finding> {
    if found == Some(expected) {
        return Vec::new();
    }
    let pairs = expected.lines().zip(found.unwrap_or_default().lines());
    let equal_lines = pairs
        .take_while(|(expected, found)| expected == found)
        .count();
    let message = "not what the code says: run `cargo xtask docs`";
    vec![(equal_lines + 1, message.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_page_passes() {
        assert_eq!(check("# A\n", Some("# A\n")), []);
    }

    #[test]
    fn a_missing_page_and_the_first_different_line_are_found() {
        assert_eq!(check("# A\n", None)[0].0, 1);
        let found = check("# A\n\nnew\n", Some("# A\n\nold\n"));
        assert_eq!(found[0].0, 3);
        assert!(found[0].1.contains("cargo xtask docs"));
        assert_eq!(check("# A\n", Some("# A")).len(), 1);
    }
}
