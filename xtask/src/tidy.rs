//! `cargo xtask tidy`: the repository's rules that neither rustc nor clippy can hold.
//!
//! Each family of checks is a file of pure functions over a path and a text; only [`check`] knows
//! where those come from.

mod core_purity;
mod crate_edges;
mod forbidden_names;
pub(crate) mod generated_pages;
mod machine_paths;
mod markdown_links;
mod source_rules;

use std::path::Path;

use crate::workspace::Workspace;

/// A broken rule in some file: the line, from 1, and what is wrong there.
type Finding = (usize, String);

/// Runs every check over the whole repository. Problems read `path:line: message`, so that editors
/// and terminals can jump to them.
pub(crate) fn check(workspace: &Workspace) -> Vec<String> {
    let mut problems = Vec::new();
    let mut report = |path: &str, findings: Vec<Finding>| {
        let lines = findings.into_iter();
        problems.extend(lines.map(|(line, message)| format!("{path}:{line}: {message}")));
    };

    let members: Vec<&str> = workspace
        .packages
        .iter()
        .map(|member| &*member.name)
        .collect();
    for package in &workspace.packages {
        let path = package.manifest_path.as_str();
        let manifest = workspace.texts.get(path).map_or("", String::as_str);
        report(path, crate_edges::check(package, &members, manifest));
        report(path, forbidden_names::check_crate(&package.name));
    }
    for (path, text) in &workspace.texts {
        if has_extension(path, "rs") {
            report(path, forbidden_names::check_modules(path, text));
            report(path, source_rules::check(path, text));
            report(path, core_purity::check(path, text));
        }
        report(path, machine_paths::check(path, text));
        report(path, markdown_links::check(path, text, &workspace.paths));
    }
    for (path, expected) in generated_pages::all() {
        let found = workspace.texts.get(&path).map(String::as_str);
        report(&path, generated_pages::check(&expected, found));
    }
    problems
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

/// Lines of Rust without the whole-line comments: prose may name what code may not use.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    numbered(text).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether `line` holds `word` other than as the tail of a longer identifier.
fn has_word(line: &str, word: &str) -> bool {
    let is_identifier = |c: char| c.is_alphanumeric() || c == '_';
    let mut places = line.match_indices(word);
    places.any(|(start, _)| !line[..start].ends_with(is_identifier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_not_found_at_the_end_of_another() {
        assert!(has_word("let x = rand::random();", "rand::"));
        assert!(has_word("operand::new(rand::random())", "rand::"));
        assert!(!has_word("operand::new()", "rand::"));
    }

    #[test]
    fn code_lines_leave_out_comments_and_keep_their_numbers() {
        let text = "//! top\nlet a = 1;\n    // note\nlet b = 2; // tail\n";
        let lines: Vec<_> = code_lines(text).collect();
        assert_eq!(lines, [(2, "let a = 1;"), (4, "let b = 2; // tail")]);
    }
}
