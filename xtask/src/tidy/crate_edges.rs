//! Which crate may depend on which.
//!
//! The compiler refuses cycles but not shortcuts; this table keeps the core pure and the wire
//! formats in the server. It mirrors ARCHITECTURE.md, and the two change together. It holds for
//! dev-dependencies too: a test that reaches across it couples the crates just as much.

use super::{Finding, numbered};
use crate::workspace::Package;

/// Names without the `portcullis-` that all but two share.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("models", &["core"]),
    ("store", &["core"]),
    ("runtime", &["core"]),
    ("planner", &["core", "runtime"]),
    ("server", &["core", "runtime", "store", "models"]),
    (
        "portcullis",
        &["core", "runtime", "store", "models", "planner", "server"],
    ),
    ("python", &["core", "runtime", "models"]),
    ("xtask", &["core", "models"]),
];

/// `members` names every crate of the workspace, `manifest` is the text of the package's own
/// manifest.
pub(super) fn check(package: &Package, members: &[&str], manifest: &str) -> Vec<Finding> {
    let name = package.name.as_str();
    let Some((_, allowed)) = ALLOWED.iter().find(|(entry, _)| *entry == short(name)) else {
        return vec![(
            1,
            format!("`{name}` is not in the table of allowed crate edges"),
        )];
    };
    let mut findings = Vec::new();
    for dependency in package.dependencies.iter().map(String::as_str) {
        // A crate that names itself turns on its own features for its tests: not an edge.
        let is_edge = members.contains(&dependency) && dependency != name;
        if is_edge && !allowed.contains(&short(dependency)) {
            let mention = numbered(manifest).find(|(_, line)| line.starts_with(dependency));
            let line = mention.map_or(1, |(number, _)| number);
            findings.push((line, format!("`{name}` may not depend on `{dependency}`")));
        }
    }
    findings
}

fn short(name: &str) -> &str {
    name.strip_prefix("portcullis-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: &str = "portcullis-core";
    const STORE: &str = "portcullis-store";

    fn package(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest_path: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn full(short: &str) -> String {
        match short {
            "portcullis" | "xtask" => short.to_owned(),
            _ => format!("portcullis-{short}"),
        }
    }

    /// Every pair of crates is tried, so that the test states the whole table a second way.
    #[test]
    fn exactly_the_edges_of_the_architecture_pass() {
        let mut edges = Vec::new();
        for (from, _) in ALLOWED {
            for (to, _) in ALLOWED.iter().filter(|(to, _)| to != from) {
                let to_name = full(to);
                if check(&package(&full(from), &[&to_name]), &[&to_name], "").is_empty() {
                    edges.push(format!("{from} {to}"));
                }
            }
        }
        edges.sort();
        let expected = [
            "models core",
            "planner core",
            "planner runtime",
            "portcullis core",
            "portcullis models",
            "portcullis planner",
            "portcullis runtime",
            "portcullis server",
            "portcullis store",
            "python core",
            "python models",
            "python runtime",
            "runtime core",
            "server core",
            "server models",
            "server runtime",
            "server store",
            "store core",
            "xtask core",
            "xtask models",
        ];
        assert_eq!(edges, expected);
    }

    #[test]
    fn an_edge_outside_the_table_is_found_on_its_line() {
        let manifest = "[dependencies]\nserde = \"1\"\nportcullis-store.workspace = true\n";
        let expected = "`portcullis-core` may not depend on `portcullis-store`".to_owned();
        let found = check(&package(CORE, &["serde", STORE]), &[CORE, STORE], manifest);
        assert_eq!(found, [(3, expected)]);
    }

    #[test]
    fn other_libraries_and_a_crate_naming_itself_are_not_edges() {
        assert_eq!(check(&package(CORE, &["serde", CORE]), &[CORE], ""), []);
    }

    #[test]
    fn a_crate_outside_the_table_is_found() {
        assert_eq!(check(&package("portcullis-extra", &[]), &[], "").len(), 1);
    }
}
