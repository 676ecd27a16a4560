//! Passwords that people think up: hardly random, and told from other words by what is beside them and by what they are
//! not.

use super::NamedCheck;
use super::words::is_pronounceable;

pub(super) const CHECKS: &[NamedCheck] = &[("human-password", human_password)];

/// What stands before a number where no password is meant: `step2`, `user1`, `sha256`.
const NUMBERED_THINGS: &[&str] = &[
    "aes", "algo", "answer", "arg", "auth", "bar", "base", "baz", "bcrypt", "bit", "box", "buf",
    "button", "byte", "case", "cell", "char", "check", "col", "count", "cred", "data", "default",
    "demo", "dialog", "digest", "digit", "entry", "env", "field", "file", "float", "foo", "form",
    "group", "hash", "hmac", "http", "idx", "index", "input", "int", "item", "key", "label", "len",
    "level", "line", "login", "max", "min", "mode", "name", "new", "node", "num", "oauth", "obj",
    "old", "option", "page", "param", "part", "pass", "path", "pbkdf", "phase", "phrase", "policy",
    "prompt", "ptr", "pwd", "ref", "required", "result", "round", "row", "rsa", "rule", "salt",
    "screen", "scrypt", "secret", "section", "sha", "size", "slot", "some", "stage", "step", "str",
    "temp", "test", "text", "tmp", "token", "type", "uint", "unit", "user", "utf", "val", "value",
    "var", "version", "view", "word",
];

/// A word and a number of one to four digits, perhaps with a mark after it: `dragon12`, `Winter77!`.
fn human_password(value: &str) -> bool {
    let plain = value.trim_end_matches(|c: char| "!@#$%&*?".contains(c));
    let word = plain.trim_end_matches(|c: char| c.is_ascii_digit());
    let lower = word.to_ascii_lowercase();
    (4..=16).contains(&word.len())
        && (1..=4).contains(&(plain.len() - word.len()))
        && value.len() <= plain.len() + 3
        && word.bytes().all(|b| b.is_ascii_alphabetic())
        && !word.bytes().skip(1).any(|b| b.is_ascii_uppercase())
        && is_pronounceable(word)
        && !NUMBERED_THINGS.iter().any(|thing| {
            let compound = thing.len() >= 4 && (lower.starts_with(thing) || lower.ends_with(thing));
            lower == *thing || compound
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::checks::table;

    #[test]
    fn people_take_a_word_and_a_number() {
        table(
            human_password,
            &["dragon12", "Winter77!", "hunter2", "purple1987"],
            &[
                "step2",
                "user1",
                "sha256",
                "password1",
                "passWord1",
                "dragon",
                "12345",
                "qzxvbn12",
                "cat1",
                "dragon12345",
                "two words1",
                "",
            ],
        );
    }
}
