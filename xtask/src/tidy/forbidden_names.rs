//! Names that say nothing about what is inside, and so attract everything.

use super::{Finding, code_lines};

const FORBIDDEN: &[&str] = &["common", "helpers", "misc", "types", "util", "utils"];

/// A crate's last word counts: `portcullis-utils` is as empty a name as `utils`.
pub(super) fn check_crate(name: &str) -> Vec<Finding> {
    let last_word = name.rsplit('-').next().unwrap_or_default();
    finding(1, last_word).into_iter().collect()
}

/// Checks the file's name, every directory above it, and the modules declared inline. `mod name;`
/// is found where its file is.
pub(super) fn check_modules(path: &str, text: &str) -> Vec<Finding> {
    let path_names = path.trim_end_matches(".rs").split('/');
    let in_path = path_names.filter_map(|name| finding(1, name));
    let inline = code_lines(text).filter_map(|(number, line)| {
        let (before, after) = line.split_once("mod ")?;
        let is_declaration = before.trim().is_empty() || before.trim().starts_with("pub");
        let name = after.split_once('{')?.0.trim();
        finding(number, name).filter(|_| is_declaration)
    });
    in_path.chain(inline).collect()
}

fn finding(line: usize, name: &str) -> Option<Finding> {
    let forbidden = FORBIDDEN.contains(&name);
    forbidden.then(|| {
        (
            line,
            format!("`{name}`: name it for the one thing it holds"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_files_and_directories_with_empty_names_are_found() {
        assert_eq!(check_crate("portcullis-utils").len(), 1);
        assert_eq!(
            check_modules("crates/portcullis-core/src/utils.rs", "").len(),
            1
        );
        assert_eq!(
            check_modules("crates/portcullis-core/tests/common/mod.rs", "").len(),
            1
        );
    }

    #[test]
    fn names_that_merely_contain_one_pass() {
        assert_eq!(check_crate("portcullis-store"), []);
        assert_eq!(
            check_modules("crates/portcullis-core/src/event_types.rs", ""),
            []
        );
    }

    #[test]
    fn inline_modules_are_found() {
        let found = check_modules("a.rs", "mod spans {}\npub(crate) mod helpers {\n}\n");
        assert_eq!(found, Vec::from_iter(finding(2, "helpers")));
        assert_eq!(
            check_modules("a.rs", "// mod util {\nmod utility {}\nmod tests {\n"),
            []
        );
    }
}
