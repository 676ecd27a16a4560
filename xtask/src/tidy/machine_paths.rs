//! Absolute paths of the machine somebody worked on: useless to everyone else, and a small leak.

use super::{Finding, numbered};

/// Written without the first `/`, so that this file passes its own check.
const MACHINE_ROOTS: &[&str] = &["work/", "root/", "home/"];

/// Paths that guard policies and their cases need, and that are nobody's machine.
const INVENTED: &[&str] = &["home/alice/", "home/bob/", "root/.ssh"];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if path.ends_with("Cargo.lock") || path.starts_with("fuzz/corpus/") {
        return Vec::new();
    }
    let lines = numbered(text).filter(|(_, line)| names_a_machine(line));
    lines
        .map(|(number, _)| (number, "an absolute path of one machine".to_owned()))
        .collect()
}

fn names_a_machine(line: &str) -> bool {
    line.match_indices('/').any(|(start, slash)| {
        let (before, path) = (&line[..start], &line[start + slash.len()..]);
        let starts_with_any = |roots: &[&str]| roots.iter().any(|root| path.starts_with(root));
        // In the middle of a longer path, of a URL or after a variable it is not absolute.
        let continues = before.ends_with(|c: char| c.is_alphanumeric() || "._-~*})>".contains(c));
        starts_with_any(MACHINE_ROOTS) && !starts_with_any(INVENTED) && !continues
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_root_is_found_in_any_text_file() {
        for root in MACHINE_ROOTS {
            let found = check("docs/guide.md", &format!("first\nrun `/{root}x/y`\n"));
            assert_eq!(found.len(), 1, "{root}");
            assert_eq!(found[0].0, 2, "{root}");
        }
    }

    #[test]
    fn relative_paths_urls_and_invented_homes_pass() {
        for root in MACHINE_ROOTS {
            let text =
                format!("https://example.org/{root}a crates/{root}b ../{root}c ${{X}}/{root}d");
            assert_eq!(check("docs/guide.md", &text), [], "{root}");
        }
        for invented in INVENTED {
            assert_eq!(
                check("policies/a.yaml", &format!("path: /{invented}x")),
                [],
                "{invented}"
            );
        }
    }

    #[test]
    fn lock_files_and_fuzz_corpora_are_not_ours_to_word() {
        let text = format!("/{}", MACHINE_ROOTS[0]);
        assert_eq!(check("Cargo.lock", &text), []);
        assert_eq!(check("fuzz/corpus/parse/0a1b", &text), []);
    }
}
