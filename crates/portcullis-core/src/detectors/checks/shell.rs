//! Checks of commands.

use super::NamedCheck;

/// The checks of this file, by the name that detector files use.
pub(super) const CHECKS: &[NamedCheck] = &[("same-file", same_file)];

/// Whether the last word names the file that the first one does.
fn same_file(value: &str) -> bool {
    let apart = |c: char| c.is_whitespace() || matches!(c, ';' | '&');
    let mut words = value.split(apart).filter(|word| !word.is_empty());
    let name = |word: &str| {
        let word = word.trim_matches(['"', '\'']);
        word.strip_prefix("./").unwrap_or(word).to_owned()
    };
    let first = words.next().map(name);
    first.is_some() && first == words.next_back().map(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::checks::table;

    #[test]
    fn files_are_the_same_however_they_are_written() {
        table(
            same_file,
            &[
                "/tmp/a && sh /tmp/a",
                "x.sh; chmod +x x.sh; ./x.sh",
                "\"a b\";. a; \"a",
            ],
            &["/tmp/a && sh /tmp/b", "/tmp/a", "", ";;"],
        );
    }
}
