//! Checks on secrets.
//!
//! Text is full of what looks like a secret and is none: placeholders, names, paths, references to
//! where the secret is kept. Telling them apart by the value alone is a matter of judgement; the
//! tables in the tests say where the line is.

use super::NamedCheck;
use super::words::is_wordish;

pub(super) const CHECKS: &[NamedCheck] = &[
    ("not-placeholder", not_placeholder),
    ("no-rows", no_rows),
    ("not-password-word", not_password_word),
    ("not-path-or-number", not_path_or_number),
    ("opaque", opaque),
    ("mixed", mixed),
    ("not-uuid", not_uuid),
    ("base64", |value| base64(value).is_some()),
    ("basic-credentials", basic_credentials),
    ("jwt", jwt),
    ("private-jwk", private_jwk),
    ("github-crc32", github_crc32),
];

/// Bits a character.
pub(super) fn shannon(value: &str) -> f64 {
    let mut counts = [0u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let len = value.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let share = f64::from(*count) / len;
            -share * share.log2()
        })
        .sum()
}

/// Words that nobody has in a real secret, and the marks of templates.
const PLACEHOLDERS: &[&str] = &[
    "example",
    "sample",
    "placeholder",
    "changeme",
    "change_me",
    "change-me",
    "change-this",
    "your_",
    "your-",
    "yourapi",
    "yourkey",
    "yourtoken",
    "yoursecret",
    "yourpass",
    "insert_",
    "insert-",
    "replace_",
    "replace-",
    "replaceme",
    "dummy",
    "redacted",
    "masked",
    "foobar",
    "not_a_real",
    "notarealkey",
    "fixme",
    "xxxx",
    "****",
    "....",
    "____",
    "${",
    "{{",
    "}}",
    "$(",
    "%(",
    "#{",
    "<%",
    "process.env",
    "os.environ",
    "getenv",
];

/// Not a stand-in: `your_key_here`, `<token>`, `${TOKEN}`, `xxxx`, `aaaa`, `12345678`.
fn not_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    !(PLACEHOLDERS.iter().any(|word| lower.contains(word))
        || is_wrapped(value)
        || is_monotone(&lower)
        || is_sequence(&lower))
}

/// `<name>`, `[NAME]`, `{name}`, `%NAME%` or `$NAME`.
fn is_wrapped(value: &str) -> bool {
    let ends = value
        .bytes()
        .next()
        .zip(value.bytes().last())
        .filter(|_| value.len() > 2);
    let brackets = [(b'<', b'>'), (b'[', b']'), (b'{', b'}'), (b'%', b'%')];
    ends.is_some_and(|ends| brackets.contains(&ends))
        || value.strip_prefix('$').is_some_and(|name| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
}

/// Hardly any different characters, or one of them over and over.
fn is_monotone(lower: &str) -> bool {
    let bytes = lower.as_bytes();
    let mut seen = [false; 256];
    for byte in bytes {
        seen[usize::from(*byte)] = true;
    }
    let distinct = seen.iter().filter(|seen| **seen).count();
    if bytes.len() < 8 {
        return distinct <= 2;
    }
    let longest = bytes
        .chunk_by(|a, b| a == b)
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    distinct < 5 || longest >= 6 && longest * 3 >= bytes.len()
}

/// Mostly rows such as `abcdef` or `67890`.
fn is_sequence(lower: &str) -> bool {
    let next = |a: &u8, b: &u8| {
        a.is_ascii_alphanumeric() && (a.wrapping_add(1) == *b || (*a, *b) == (b'9', b'0'))
    };
    let in_rows: usize = lower
        .as_bytes()
        .chunk_by(next)
        .map(<[u8]>::len)
        .filter(|len| *len >= 4)
        .sum();
    in_rows * 5 >= lower.len() * 3
}

/// Nothing random has `aaaa`, `1234` or `dcba` in it, nor longer rows if it is long itself. What is made up for a test
/// often has.
fn no_rows(value: &str) -> bool {
    let bytes = value.as_bytes();
    let longest = (usize::BITS - bytes.len().leading_zeros()).max(4) as usize;
    let row = |step: u8, from: &[u8]| {
        let next = |a: &u8, b: &u8| a.wrapping_add(step) == *b;
        from.chunk_by(next)
            // Noughts are many in what is encoded, and marks in what is drawn.
            .filter(|row| step != 0 || bytes.len() < 32 || !b"A/_=-".contains(&row[0]))
            .any(|row| row.len() >= longest)
    };
    !(row(0, bytes) || row(1, bytes) || row(u8::MAX, bytes))
}

/// What documentation writes where a password goes.
const PASSWORD_WORDS: &[&str] = &[
    "password",
    "passwd",
    "pass",
    "pwd",
    "pw",
    "secret",
    "token",
    "key",
    "user",
    "username",
    "admin",
    "root",
    "guest",
    "test",
    "none",
    "null",
    "true",
    "false",
    "string",
    "undefined",
    "empty",
    "credentials",
    "passphrase",
    "apikey",
    "api_key",
    "access_token",
    "mypassword",
    "my_password",
    "mysecret",
    "my-secret",
    "pass123",
    "secretpassword",
    "port",
    "host",
];

/// Not `password`, nor `PASSWORD` or another word in capitals. One with marks of three sorts is no word.
fn not_password_word(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let word = lower.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let digits = value.bytes().any(|b| b.is_ascii_digit());
    let capitals = value.bytes().any(|b| b.is_ascii_uppercase())
        && !value.bytes().any(|b| b.is_ascii_lowercase())
        && b"!@#$%^&*?~"
            .iter()
            .filter(|mark| value.as_bytes().contains(mark))
            .count()
            < 3;
    !PASSWORD_WORDS.contains(&word) && (digits || !capitals)
}

/// Not `bin/start`, `user/pass`, `0xffff` or `1.302140`. Only what is long and random can have a slash in it.
fn not_path_or_number(value: &str) -> bool {
    (value.len() > 20 || !value.contains('/')) && !is_number(value)
}

/// As code and records write them: in hexadecimal, in bits, with a type, with dots.
fn is_number(value: &str) -> bool {
    const TYPES: [&str; 10] = [
        "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "f64",
    ];
    let lower = value
        .trim_end_matches([',', ';', '.', ')'])
        .to_ascii_lowercase();
    let all = |digits: &str, is: fn(&u8) -> bool| digits.bytes().all(|b| is(&b));
    let (hex, bits) = (lower.strip_prefix("0x"), lower.strip_prefix("0b"));
    let mut typed = TYPES.iter().filter_map(|name| lower.strip_suffix(name));
    hex.is_some_and(|digits| all(digits, u8::is_ascii_hexdigit))
        || bits.is_some_and(|digits| all(digits, |b| b"01_".contains(b)))
        || typed.any(|digits| !digits.is_empty() && all(digits, u8::is_ascii_digit))
        || lower.contains('.') && all(&lower, |b| b.is_ascii_digit() || *b == b'.')
}

/// Marks of URLs, templates, code and regular expressions.
const CODE_MARKS: &[&str] = &[
    "://", "data:", "%s", "%d", "{0}", "&&", "||", "=>", "->", "::", "\\u00", "a-z", "(?:",
];

/// How hashes and keys that are published, paths and other references begin.
const REFERENCES: &[&str] = &[
    "sha1-",
    "sha256-",
    "sha384-",
    "sha512-",
    "sha256:",
    "sha256=",
    "md5:",
    "/",
    "./",
    "../",
    "~/",
    "#/",
    "@",
    "--",
    "$.",
    "arn:",
    "urn:",
    "refs/",
    "vault:",
    "pk_live_",
    "pk_test_",
    "sb_publishable_",
    "phc_",
];

/// Reads as no name, path, number, date, version, address or piece of code.
fn opaque(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let foreign = value.chars().filter(|c| !c.is_ascii()).count();
    !(CODE_MARKS.iter().any(|mark| lower.contains(mark))
        || REFERENCES.iter().any(|start| lower.starts_with(start)) && !is_random_run(value)
        || is_address(&lower)
        || is_contract(&lower)
        || foreign * 2 > value.chars().count()
        || has_template_name(value)
        || is_call(value)
        || is_file_name(&lower)
        || value.strip_prefix('!').is_some_and(is_wordish)
        || value
            .split(|c: char| "._-/:\\@,+ ~|*=()[]{}<>;?".contains(c))
            .map(|part| part.strip_prefix('&').unwrap_or(part))
            .all(is_wordish))
}

/// Base64 that happens to begin with a slash, as one in 64 does: no path has so much of everything in one of its parts.
fn is_random_run(value: &str) -> bool {
    let longest = value.split('/').max_by_key(|part| part.len());
    let longest = longest.unwrap_or_default();
    let count = |is: fn(&u8) -> bool| longest.bytes().filter(is).count();
    longest.len() >= 16
        && value.len() >= 32
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
        && count(u8::is_ascii_uppercase) * 5 >= longest.len()
        && count(u8::is_ascii_lowercase) * 5 >= longest.len()
        && count(u8::is_ascii_digit) >= 2
}

/// The domains that most addresses are at.
const TOP_LEVEL: &[&str] = &[
    "com", "net", "org", "edu", "gov", "info", "io", "dev", "co", "uk", "de", "fr", "ru", "cn",
    "jp", "kr", "in", "br", "it", "es", "nl",
];

/// `build42@acme.com`.
fn is_address(lower: &str) -> bool {
    lower.split_once('@').is_some_and(|(name, host)| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
        let domain = host.rsplit_once('.');
        name.len() >= 3
            && name.bytes().chain(host.bytes()).all(plain)
            && domain.is_some_and(|(labels, top)| labels.len() >= 3 && TOP_LEVEL.contains(&top))
    })
}

/// The address of a contract or an account, which everybody may know. A key has 64 digits.
fn is_contract(lower: &str) -> bool {
    lower
        .strip_prefix("0x")
        .is_some_and(|rest| rest.len() == 40 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// How the names of files end that are referred to from configuration, code and records of what is stored.
const EXTENSIONS: &[&str] = &[
    "avif", "bin", "bmp", "bz2", "cer", "cfg", "conf", "crt", "css", "csv", "db", "der", "dll",
    "doc", "docx", "env", "exe", "gif", "go", "gz", "heic", "htm", "html", "ico", "ini", "ipynb",
    "jar", "java", "jks", "jpeg", "jpg", "js", "json", "jsonl", "jsx", "key", "kt", "lock", "log",
    "map", "md", "mjs", "mov", "mp3", "mp4", "p12", "parquet", "pdf", "pem", "pfx", "php", "png",
    "pptx", "proto", "pub", "py", "rb", "rs", "scss", "sh", "sql", "sqlite", "svg", "swift", "tar",
    "tf", "tfstate", "tgz", "tif", "tiff", "toml", "ts", "tsx", "ttf", "txt", "vue", "war", "wasm",
    "wav", "webm", "webp", "woff", "woff2", "xls", "xlsx", "xml", "xz", "yaml", "yml", "zip",
    "zst",
];

/// `uploads/avatar@2x.png`: a name and an extension.
fn is_file_name(lower: &str) -> bool {
    lower.rsplit_once('.').is_some_and(|(name, extension)| {
        name.ends_with(|c: char| c.is_ascii_alphanumeric() || "-_)".contains(c))
            && EXTENSIONS.contains(&extension)
    })
}

/// `{name}` anywhere.
fn has_template_name(value: &str) -> bool {
    value.split('{').skip(1).any(|rest| {
        rest.split_once('}').is_some_and(|(name, _)| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(is_name_byte)
        })
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'
}

/// A name and then a bracket: `getpass(`, `request.headers[`, `vec![`.
fn is_call(value: &str) -> bool {
    let Some(end) = value.find(['(', '[']) else {
        return false;
    };
    let name = &value[..end];
    let name = name.strip_suffix('!').unwrap_or(name);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && name
            .bytes()
            .all(|b| is_name_byte(b) || b":>$-".contains(&b))
        && name.split(|c: char| "_.:>$-".contains(c)).all(is_wordish)
}

/// Has letters and digits.
fn mixed(value: &str) -> bool {
    value.bytes().any(|b| b.is_ascii_alphabetic()) && value.bytes().any(|b| b.is_ascii_digit())
}

/// Is not a UUID, which more often names a thing than guards it.
fn not_uuid(value: &str) -> bool {
    let groups: Vec<&str> = value.split('-').collect();
    let lengths = groups.iter().map(|group| group.len());
    !(lengths.eq([8, 4, 4, 4, 12]) && value.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
}

/// `name:password` in base64.
fn basic_credentials(value: &str) -> bool {
    base64(value)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .is_some_and(|text| {
            let has_password = text
                .split_once(':')
                .is_some_and(|(_, password)| !password.is_empty());
            has_password && !text.chars().any(char::is_control)
        })
}

/// The part before the first dot is JSON with an `alg`.
fn jwt(value: &str) -> bool {
    value
        .split('.')
        .next()
        .and_then(base64)
        .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .is_some_and(|header| header.get("alg").is_some())
}

/// In base64, a JSON Web Key with the part that is not public.
fn private_jwk(value: &str) -> bool {
    let has = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    base64(value).is_some_and(|bytes| has(&bytes, br#""d""#) || has(&bytes, br#""k""#))
}

/// The bytes of a text in either base64 alphabet, padded or not.
pub(super) fn base64(value: &str) -> Option<Vec<u8>> {
    let text = value.trim_end_matches('=');
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let mut buffer = 0u32;
    let mut bits = 0;
    for byte in text.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 0xff) as u8);
        }
    }
    Some(bytes)
}

/// The last six characters are the CRC32 of those between the prefix and them, in base 62.
fn github_crc32(value: &str) -> bool {
    let body = value.rsplit('_').next().unwrap_or(value).as_bytes();
    body.len()
        .checked_sub(6)
        .filter(|at| *at > 0)
        .map(|at| body.split_at(at))
        .is_some_and(|(random, sum)| base62(crc32(random)) == *sum)
}

/// The CRC of IEEE 802.3, a bit at a time: it is only asked of what already looks like a token.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (crc & 1).wrapping_neg() & 0xedb8_8320
        })
    })
}

fn base62(mut number: u32) -> [u8; 6] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = [b'0'; 6];
    for place in text.iter_mut().rev() {
        *place = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detectors::checks::table;
    use proptest::prelude::*;

    #[test]
    fn placeholders_are_no_secrets() {
        table(
            not_placeholder,
            &[
                "q7R2zL9vX1",
                "hunter2",
                "$2y$10$abc",
                "pa$$w0rd",
                "Zk1abcd9",
            ],
            &[
                "AKIAIOSFODNN7EXAMPLE",
                "your_key_here",
                "<token>",
                "${TOKEN}",
                "$TOKEN",
                "%TOKEN%",
                "{{ token }}",
                "xxxxxxxx",
                "aaaaaaaaaaaa",
                "abcdefghij",
                "1234567890",
                "sk-0123456789abcdef",
                "",
            ],
        );
    }

    #[test]
    fn rows_are_not_random() {
        table(
            no_rows,
            &[
                "q7R2zL9vX1",
                "abc9xyz8",
                "",
                "AAAAAAAAAAAAAAAAAAAAAz9Yx2Wv3Ut4Rq5Po",
            ],
            &[
                "sk-9xabcd7",
                "zz1111q",
                "x9876k",
                "q7R2zL9vX1q7R2zL9123456z",
            ],
        );
    }

    #[test]
    fn paths_and_numbers_are_no_passwords() {
        table(
            not_path_or_number,
            &[
                "q7R2zL9vX1",
                "0xyz",
                "q7R2zL9v/X1q7R2zL9vX1+",
                "u16u16",
                "12345",
            ],
            &[
                "bin/start9",
                "admin/P4ss",
                "0xdeadbeef",
                "0X1f",
                "0xC0,",
                "0b0100.",
                "768u16",
                "1.302140",
                "1.2.840.113549.1.9.7",
            ],
        );
    }

    #[test]
    fn words_for_passwords_are_no_passwords() {
        table(
            not_password_word,
            &["q7R2zL9vX1", "A7B9C1", "hunter2", "KWERT!#%"],
            &[
                "password",
                "Password",
                "PASSWORD",
                "[secret]",
                "DB_PASS",
                "@@DB_PASS@@",
            ],
        );
    }

    #[test]
    fn what_can_be_read_is_not_opaque() {
        table(
            opaque,
            &[
                "q7R2zL9vX1",
                "hunter2xyz9",
                "admin123",
                "Passw0rd!",
                "8f14e45fceea167a5a36dedd4bea2543",
                "qwrtzxcvb",
                "IqZbWpXk",
                "/q7R2zL9vX1q7R2zL9vX1q7R2zL9vX1q7R2zL9vX",
                "P@ss.w0rd",
                "müller7x",
                "&q7R2zL9vX1",
                "0xA7c4E19b02D85f6637aB90cD1e4F52386bC9d0",
            ],
            &[
                "password",
                "user_password",
                "getPassword",
                "config.password2",
                "prod/db",
                "uploads/42/avatar-large@2x.png",
                "q7R2zL9vX1.json",
                "/run/secrets/db",
                "https://host/x9k2",
                "2024-01-01",
                "10.0.0.1",
                "aes-256-gcm",
                "pbkdf2_sha256",
                "1280px",
                "!vault",
                "rsa-sha2-512",
                "me@host.org",
                "q7r2zl9vx1@acme.com",
                "/srv/q7R2zL9vX1/q7R2zL9vX1/q7R2zL9vX1",
                "getpass()",
                "request.headers[0]",
                "{name}-9x8y7z",
                "sha512-9x8y7z",
                "[a-z0-9]{32}",
                "секретное",
                "Größenangabe",
                "пароль12",
                "&str)",
                "&[u8])",
                "&SecretString)",
                "vec![]",
                "json!(",
                "0xA7c4E19b02D85f6637aB90cD1e4F52386bC9d074",
                "pk_live_q7R2zL9vX1mPw3tYb6Nc",
                "sb_publishable_q7R2zL9vX1mPw3tYb6Nc",
                "vault:secret/data/prod/db#pw1",
                "Db:Password",
            ],
        );
    }

    #[test]
    fn letters_and_digits_are_mixed() {
        table(mixed, &["a1"], &["a", "1", "é1", ""]);
    }

    #[test]
    fn a_uuid_is_told_by_its_groups() {
        let uuid = "123e4567-e89b-42d3-a456-426614174000";
        table(not_uuid, &["123e4567", "123e4567-e89b"], &[uuid]);
    }

    #[test]
    fn credentials_are_told_by_their_colon() {
        let fails = ["authentication", "bm9jb2xvbg==", "YTo=", "!!"];
        table(basic_credentials, &["YTpi", "dXNlcjpwYXNz"], &fails);
    }

    #[test]
    fn a_jwt_names_its_algorithm() {
        let holds = ["eyJhbGciOiJIUzI1NiJ9.e30.x"];
        table(jwt, &holds, &["eyJub3QiOiJqd3QifQ.e30.x", "ey.ey", ""]);
    }

    #[test]
    fn a_private_jwk_has_its_private_part() {
        let private = "eyJrdHkiOiJFQyIsImQiOiJ4In0";
        table(
            private_jwk,
            &[private],
            &["eyJrdHkiOiJFQyIsIngiOiJ4In0", "?"],
        );
    }

    /// Held against zlib's CRC32.
    #[test]
    fn a_github_token_ends_with_its_checksum() {
        table(
            github_crc32,
            &["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"],
            &["ghp_zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq18", "ghp_", ""],
        );
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    proptest! {
        #[test]
        fn checks_take_any_text(value in ".{0,80}") {
            for (_, check) in CHECKS {
                check(&value);
            }
            prop_assert!((0.0..=8.0).contains(&shannon(&value)));
        }

        #[test]
        fn a_reference_to_a_secret_is_no_secret(name in "[A-Za-z_][A-Za-z0-9_]{0,20}") {
            let dollar = format!("${name}");
            let braces = format!("${{{name}}}");
            prop_assert!(!not_placeholder(&dollar) && !not_placeholder(&braces));
        }

        #[test]
        fn one_bit_more_is_another_checksum(text in "[A-Za-z0-9]{30}", at in 0usize..30, bit in 0u8..8) {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1 << bit;
            prop_assert_ne!(crc32(text.as_bytes()), crc32(&other));
        }
    }
}
