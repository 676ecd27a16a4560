//! Relative links in the documents people read first must lead somewhere.
//!
//! Targets are looked up among the files git would commit, not on the disk: a link to an ignored
//! file works only for its author. Anchors are not followed.

use std::path::{Component, Path};

use super::{Finding, has_extension, numbered};

const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(super) fn check(path: &str, text: &str, paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let in_docs = path.starts_with("docs/") && has_extension(path, "md");
    if !in_docs && !DOCUMENTS.contains(&path) {
        return findings;
    }
    let mut in_fence = false;
    for (number, line) in numbered(text) {
        in_fence ^= line.trim_start().starts_with("```");
        if in_fence {
            continue;
        }
        // Inline code may look like a link; its marks stay, so that [`name`](target) is still one.
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for target in targets(&prose).filter(|target| is_relative(target)) {
            let exists = |target: String| {
                paths
                    .iter()
                    .any(|path| Path::new(path).starts_with(&target))
            };
            if !resolve(path, target).is_some_and(exists) {
                findings.push((number, format!("link to `{target}`, which does not exist")));
            }
        }
    }
    findings
}

/// The targets of `[text](target "title")` and of `[name]: target`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1);
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split("]: ").nth(1));
    let with_rest = inline.chain(definition);
    with_rest.filter_map(|target| target.split([')', ' ']).next())
}

/// Not a URL, nor a place on the same page.
fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:") && !target.starts_with('#')
}

/// The target as a path from the repository root; none where it leaves the repository.
fn resolve(document: &str, target: &str) -> Option<String> {
    let target = target.split('#').next()?;
    let mut parts = Vec::new();
    for component in Path::new(document).parent()?.join(target).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?.to_owned()),
            Component::ParentDir => drop(parts.pop()?),
            _ => {}
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<Finding> {
        let paths = [
            "README.md",
            "LICENSE",
            "docs/rules.md",
            "docs/adr/0001-core.md",
        ];
        let paths = paths.map(str::to_owned);
        check(path, text, &paths)
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[rules](docs/rules.md) and [`core`](docs/adr/0001-core.md#why \"ADR\"), [all](docs/)\n\
                    [web](https://example.org/x.md) [mail](mailto:a@example.org) [here](#top)\n\
                    [licence]: LICENSE\n";
        assert_eq!(broken("README.md", text), []);
        let text = "[up](../rules.md) [root](/LICENSE) [home](../../README.md) [tree](../..)\n";
        assert_eq!(broken("docs/adr/0001-core.md", text), []);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let expected = "link to `docs/rule.md`, which does not exist".to_owned();
        let found = broken("README.md", "# A\n[a](LICENSE) [b](docs/rule.md)\n");
        assert_eq!(found, [(2, expected)]);
        assert_eq!(broken("README.md", "[x]: gone.md\n").len(), 1);
        assert_eq!(
            broken("docs/rules.md", "[out](../../elsewhere.md)\n").len(),
            1
        );
    }

    #[test]
    fn code_and_other_documents_are_not_read() {
        let text = "`[a](gone.md)`\n\n```text\n[a](gone.md)\n```\n";
        assert_eq!(broken("README.md", text), []);
        assert_eq!(broken("crates/a/notes.md", "[a](gone.md)"), []);
    }
}
