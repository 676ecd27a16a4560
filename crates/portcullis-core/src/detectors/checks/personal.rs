//! Checks of the personal data that no single country owns: cards, accounts, telephone numbers,
//! dates of birth, e-mail and network addresses.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::NamedCheck;

/// The checks of this file, by the name that detector files use.
pub(super) const CHECKS: &[NamedCheck] = &[
    ("luhn", luhn),
    ("card-issuer", card_issuer),
    ("iban", iban),
    ("aba-routing", aba_routing),
    ("bic", bic),
    ("email", email),
    ("phone", phone),
    ("phone-international", phone_international),
    ("phone-national", phone_national),
    ("birth-date", birth_date),
    ("few-letters", few_letters),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("mac", mac),
];

/// Characters that people write between the groups of a number.
const SEPARATORS: [char; 11] = [
    ' ', '-', '.', '/', '(', ')', '（', '）', '\u{a0}', '\u{202f}', '\u{2011}',
];

/// The digits of a number without what stands between its groups; none if there is anything else.
pub(super) fn digits(value: &str) -> Option<Vec<u32>> {
    value
        .chars()
        .filter(|c| !SEPARATORS.contains(c))
        .map(|c| c.to_digit(10))
        .collect()
}

/// So many digits, or none.
pub(super) fn exactly<const N: usize>(value: &str) -> Option<[u32; N]> {
    digits(value)?.try_into().ok()
}

/// Letters in upper case and digits, without what stands between the groups.
pub(super) fn plain(value: &str) -> String {
    value
        .chars()
        .filter(|c| !SEPARATORS.contains(c))
        .map(|c| c.to_ascii_uppercase())
        .collect()
}

/// Each digit times its weight, summed.
pub(super) fn weighted(digits: &[u32], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(d, w)| d * w).sum()
}

/// The number that these digits write.
pub(super) fn number(digits: &[u32]) -> u64 {
    digits.iter().fold(0, |sum, d| sum * 10 + u64::from(*d))
}

/// Whether the digits are all the same: a placeholder in any scheme.
pub(super) fn uniform(digits: &[u32]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// Whether a calendar can have this day. February always has 29: a wrong leap day is no reason to
/// let a number pass.
pub(super) fn is_day(month: u64, day: u64) -> bool {
    let days = match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// ISO/IEC 7812: every second digit from the right is doubled.
pub(super) fn luhn_digits(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, d)| match at % 2 {
            1 if *d > 4 => d * 2 - 9,
            1 => d * 2,
            _ => *d,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn luhn(value: &str) -> bool {
    digits(value).is_some_and(|d| d.len() > 1 && !uniform(&d) && luhn_digits(&d))
}

/// First and last number of a range of leading digits, and the lengths of its cards.
type Issuer = (u64, u64, &'static [usize]);

const ISSUERS: &[Issuer] = &[
    (4, 4, &[13, 16, 19]),
    (51, 55, &[16]),
    (2221, 2720, &[16]),
    (34, 34, &[15]),
    (37, 37, &[15]),
    (300, 305, &[14, 16, 17, 18, 19]),
    (3095, 3095, &[14, 16, 17, 18, 19]),
    (36, 36, &[14, 15, 16, 17, 18, 19]),
    (38, 39, &[14, 16, 17, 18, 19]),
    (6011, 6011, &[16, 17, 18, 19]),
    (644, 659, &[16, 17, 18, 19]),
    (62, 62, &[16, 17, 18, 19]),
    (81, 82, &[16, 17, 18, 19]),
    // JCB has 3528 to 3589; generators of test data use all of 35.
    (35, 35, &[16, 17, 18, 19]),
    (1800, 1800, &[15]),
    (2131, 2131, &[15]),
    (2200, 2204, &[16, 17, 18, 19]),
    (5018, 5020, &[12, 13, 14, 15, 16, 17, 18, 19]),
    (5038, 5038, &[12, 13, 14, 15, 16, 17, 18, 19]),
    (5041, 5099, &[16, 18, 19]),
    (5893, 5893, &[12, 13, 14, 15, 16, 17, 18, 19]),
    (604, 609, &[16]),
    (6304, 6304, &[12, 13, 14, 15, 16, 17, 18, 19]),
    (6362, 6363, &[16]),
    (6759, 6763, &[12, 13, 14, 15, 16, 17, 18, 19]),
    (8699, 8699, &[15]),
    (9792, 9792, &[16]),
];

/// Whether a payment scheme gives out numbers that start so and are so long.
fn card_issuer(value: &str) -> bool {
    let Some(digits) = digits(value) else {
        return false;
    };
    ISSUERS.iter().any(|(first, last, lengths)| {
        let width = first.ilog10() as usize + 1;
        lengths.contains(&digits.len()) && (*first..=*last).contains(&number(&digits[..width]))
    })
}

/// The countries of the IBAN registry, by how long their numbers are.
const IBAN_LENGTHS: &[(usize, &[&str])] = &[
    (15, &["NO"]),
    (16, &["BE"]),
    (18, &["DK", "FI", "FK", "FO", "GL", "NL", "SD"]),
    (19, &["MK", "SI"]),
    (20, &["AT", "BA", "EE", "KZ", "LT", "LU", "MN", "XK"]),
    (21, &["CH", "HR", "LI", "LV"]),
    (
        22,
        &["BG", "BH", "CR", "DE", "GB", "GE", "IE", "ME", "RS", "VA"],
    ),
    (23, &["AE", "GI", "IL", "IQ", "OM", "SO", "TL"]),
    (
        24,
        &[
            "AD", "CZ", "ES", "MD", "PK", "RO", "SA", "SE", "SK", "TN", "VG",
        ],
    ),
    (25, &["LY", "PT", "ST"]),
    (26, &["IS", "TR"]),
    (27, &["BI", "DJ", "FR", "GR", "IT", "MC", "MR", "SM"]),
    (
        28,
        &[
            "AL", "AZ", "BY", "CY", "DO", "GT", "HN", "HU", "LB", "NI", "PL", "SV",
        ],
    ),
    (29, &["BR", "EG", "PS", "QA", "UA"]),
    (30, &["JO", "KW", "MU", "YE"]),
    (31, &["MT", "SC"]),
    (32, &["LC"]),
    (33, &["RU"]),
];

/// ISO 13616: the country's length, and 1 as the remainder of 97.
fn iban(value: &str) -> bool {
    let text = plain(value);
    let known = IBAN_LENGTHS.iter().any(|(length, countries)| {
        text.len() == *length && countries.iter().any(|country| text.starts_with(country))
    });
    known && remainder_97(text.chars().cycle().skip(4).take(text.len())) == Some(1)
}

/// ISO 7064 over letters that stand for 10 to 35.
fn remainder_97(text: impl Iterator<Item = char>) -> Option<u32> {
    text.map(|c| c.to_digit(36))
        .try_fold(0, |rest, value| match value? {
            value @ 0..=9 => Some((rest * 10 + value) % 97),
            value => Some((rest * 100 + value) % 97),
        })
}

/// The prefixes of the Federal Reserve districts, and weights 3, 7, 1.
fn aba_routing(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| {
        matches!(number(&d[..2]), 1..=12 | 21..=32 | 61..=72 | 80)
            && weighted(&d, &[3, 7, 1, 3, 7, 1, 3, 7, 1]).is_multiple_of(10)
    })
}

/// ISO 3166 codes, and Kosovo's.
const COUNTRIES: &str = "ADAEAFAGAIALAMAOAQARASATAUAWAXAZBABBBDBEBFBGBHBIBJBLBMBNBOBQBRBSBTBVBWBYBZ\
    CACCCDCFCGCHCICKCLCMCNCOCRCUCVCWCXCYCZDEDJDKDMDODZECEEEGEHERESETFIFJFKFMFOFRGAGBGDGEGFGGGHGIGLGM\
    GNGPGQGRGSGTGUGWGYHKHMHNHRHTHUIDIEILIMINIOIQIRISITJEJMJOJPKEKGKHKIKMKNKPKRKWKYKZLALBLCLILKLRLSLT\
    LULVLYMAMCMDMEMFMGMHMKMLMMMNMOMPMQMRMSMTMUMVMWMXMYMZNANCNENFNGNINLNONPNRNUNZOMPAPEPFPGPHPKPLPMPN\
    PRPSPTPWPYQARERORSRURWSASBSCSDSESGSHSISJSKSLSMSNSOSRSSSTSVSXSYSZTCTDTFTGTHTJTKTLTMTNTOTRTTTVTWTZ\
    UAUGUMUSUYUZVAVCVEVGVIVNVUWFWSXKYEYTZAZMZW";

/// ISO 9362: letters five and six are a country.
fn bic(value: &str) -> bool {
    let text = plain(value);
    matches!(text.len(), 8 | 11)
        && text.get(4..6).is_some_and(|country| {
            COUNTRIES
                .as_bytes()
                .chunks(2)
                .any(|known| known == country.as_bytes())
        })
}

/// Endings of file names that look like domains.
const FILE_ENDINGS: &[&str] = &[
    "png",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "ico",
    "css",
    "scss",
    "js",
    "mjs",
    "ts",
    "tsx",
    "jsx",
    "json",
    "html",
    "py",
    "java",
    "class",
    "jar",
    "service",
    "socket",
    "target",
    "mount",
    "timer",
    "local",
    "localdomain",
    "internal",
    "lan",
];

/// An address of a person, not of a repository or a file.
fn email(value: &str) -> bool {
    let Some((local, domain)) = value.rsplit_once('@') else {
        return false;
    };
    let ending = domain.rsplit('.').next().unwrap_or_default();
    let is_file = FILE_ENDINGS
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known));
    !is_file
        && local != "git"
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..")
        && domain
            .split('.')
            .all(|label| !label.starts_with('-') && !label.ends_with('-'))
}

/// The digits of a telephone number, without its extension.
fn phone_digits(value: &str) -> Option<Vec<u32>> {
    let main = value
        .split_once(|c: char| c.is_ascii_alphabetic() || c == '#')
        .map_or(value, |(main, _)| main);
    digits(main.trim().trim_start_matches('+'))
}

/// Four numbers with nothing but dots between them: an address of a host, or a version.
fn is_dotted(value: &str) -> bool {
    let parts: Vec<&str> = value.split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() == 4 && parts.iter().all(number)
}

/// So many digits as a subscriber can have, and neither a date nor somebody counting.
fn phone(value: &str) -> bool {
    phone_digits(value).is_some_and(|d| (7..=15).contains(&d.len()) && !uniform(&d))
        && !is_dotted(value)
        && !starts_with_date(value)
        && !counts_up(value)
}

/// A number as it is dialled inside a country. Groups of three, two and four are an American's social security number.
fn phone_national(value: &str) -> bool {
    let groups = numbers(value);
    phone(value)
        && phone_digits(value).is_some_and(|d| (9..=12).contains(&d.len()))
        && !groups.iter().map(|group| group.len()).eq([3, 2, 4])
}

/// ITU E.164: a calling code that is in use, and eight to fifteen digits.
fn phone_international(value: &str) -> bool {
    let Some(digits) = phone_digits(value) else {
        return false;
    };
    let digits = match digits.as_slice() {
        [0, 0, rest @ ..] => rest,
        all => all,
    };
    let subscriber = match digits {
        [1, rest @ ..] => rest.len() == 10 && rest[0] > 1,
        [7, rest @ ..] => rest.len() == 10,
        [2, 0 | 7, rest @ ..]
        | [3, 0..=4 | 6 | 9, rest @ ..]
        | [4, 0 | 1 | 3..=9, rest @ ..]
        | [5, 1..=8, rest @ ..]
        | [6, 0..=6, rest @ ..]
        | [8, 1 | 2 | 4 | 6, rest @ ..]
        | [9, 0..=5 | 8, rest @ ..] => rest.len() > 5,
        [2, 1..=6 | 9, _, rest @ ..]
        | [3, 5 | 7 | 8, _, rest @ ..]
        | [4, 2, _, rest @ ..]
        | [5, 0 | 9, _, rest @ ..]
        | [6, 7..=9, _, rest @ ..]
        | [8, 0 | 5 | 7 | 8, _, rest @ ..]
        | [9, 6 | 7, _, rest @ ..]
        | [9, 9, 2..=6 | 8, rest @ ..] => rest.len() > 4,
        _ => false,
    };
    subscriber && digits.len() <= 15 && !uniform(digits)
}

/// The runs of digits in a text.
fn numbers(value: &str) -> Vec<&str> {
    value
        .split(|c: char| !c.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .collect()
}

/// Whether the first three groups are a day, a month and a year, in any order.
fn starts_with_date(value: &str) -> bool {
    let groups = numbers(value);
    let [a, b, c, ..] = groups.as_slice() else {
        return false;
    };
    let year = |text: &str| text.len() == 4 && (text.starts_with("19") || text.starts_with("20"));
    let small = |text: &str| text.len() <= 2 && text.parse().is_ok_and(|n: u32| n <= 31);
    (year(a) && small(b) && small(c)) || (small(a) && small(b) && year(c))
}

/// Whether each group is the one before it and one more: `05 06 07 08 09`.
fn counts_up(value: &str) -> bool {
    let groups: Vec<u64> = numbers(value)
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    groups.len() > 2 && groups.windows(2).all(|pair| pair[0] + 1 == pair[1])
}

/// A day that somebody living can be born on. A month may be a word: then day and year are enough.
fn birth_date(value: &str) -> bool {
    let groups: Vec<u64> = numbers(value)
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    let year = |n: u64| n < 100 || (1900..=2035).contains(&n);
    let either = |a: u64, b: u64| is_day(a, b) || is_day(b, a);
    match groups.as_slice() {
        [all @ 19_000_101..=20_351_231] => is_day(all / 100 % 100, all % 100),
        [day, last] => (1..=31).contains(day) && year(*last),
        [first, month, day] if *first > 31 => year(*first) && is_day(*month, *day),
        [a, b, last] => either(*a, *b) && year(*last),
        _ => false,
    }
}

/// A document number: at least half of it digits, so that a word in capitals is none.
fn few_letters(value: &str) -> bool {
    let digits = value.chars().filter(char::is_ascii_digit).count();
    let letters = value.chars().filter(char::is_ascii_alphabetic).count();
    digits >= 4 && digits >= letters && !starts_with_date(value)
}

/// One host: not this machine, not a mask, and not a version such as `4.0.0.0`.
fn ipv4(value: &str) -> bool {
    value.parse::<Ipv4Addr>().is_ok_and(|address| {
        let [first, rest @ ..] = address.octets();
        !address.is_loopback() && first != 0 && first != 255 && rest != [0, 0, 0]
    })
}

/// A global, private or link-local address, or any that is written out. Other short ones are more
/// often names in a program: `dead::beef` parses too.
fn ipv6(value: &str) -> bool {
    value.parse::<Ipv6Addr>().is_ok_and(|address| {
        let first = address.segments()[0];
        let written_out = !value.contains("::") && value.len() >= 24;
        written_out || matches!(first, 0x2000..=0x3fff | 0xfc00..=0xfdff | 0xfe80..=0xfebf)
    })
}

/// Six bytes that are an interface's, not a placeholder or the start of a fingerprint.
fn mac(value: &str) -> bool {
    let hex: String = value.chars().filter(char::is_ascii_hexdigit).collect();
    let first = hex.chars().next();
    hex.len() == 12 && !hex.chars().all(|c| Some(c) == first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values_are_judged_right() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("luhn", &["4111 1111 1111 1111", "79927398713"], &["4111111111111112", "0000000000000000", "4", "41x1"]),
            ("card-issuer", &["4111111111111111", "378282246310005", "5555-5555-5555-4444", "6759649826438453", "3530111333300000"],
                &["9111111111111111", "41111111111111", "5655555555554444", ""]),
            ("iban", &["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "NO9386011117947", "fr14 2004 1010 0505 0001 3M02 606"],
                &["DE89 3704 0044 0532 0130 01", "DE8937040044053201300", "ZZ82WEST12345698765432", ""]),
            ("aba-routing", &["021000021", "011401533"], &["021000022", "991000021", "02100002"]),
            ("bic", &["DEUTDEFF", "NEDSZAJJXXX"], &["PASSWORD", "DEUTDEFFX", "AÄÖÜDE"]),
            ("email", &["a.b+c@example.co.uk"], &["git@github.com", "icon@2x.png", "a..b@example.com", "a@-b.com", "plain"]),
            ("phone", &["555-1234", "(020) 7946 0958 ext. 12"], &["123456", "05 06 07 08", "2024-01-02 11", "000 0000"]),
            ("phone-international", &["+1 555 123 4567", "+44 20 7946 0958", "0049 171 1234567", "+358401234567"],
                &["+1 055 123 4567", "+999 12345678", "+49 123", "+1234567"]),
            ("phone-national", &["020 7946 0958", "06 12 34 56 78"], &["01 02 2003 11", "01234567", "078-05-1120"]),
            ("birth-date", &["31.12.1985", "1985-12-31", "12/31/85", "12 March 1980", "1980年3月12日", "19851231"],
                &["19851331", "18991231", "31.31.1985", "1776-07-04", "4 July 1776", "40"]),
            ("few-letters", &["C01X00T47", "D1234567"], &["PASSPORT", "A1B2C", "2024-01-02"]),
            ("ipv4", &["192.0.2.1", "8.8.8.8"], &["127.0.0.1", "0.0.0.0", "256.1.1.1", "1.2.3.4.5", "255.255.255.0", "4.0.0.0", "version 1.2.3.4"]),
            ("ipv6", &["2001:db8::1", "fe80::1", "fd00:1:2:3:4:5:6:7", "b3c2:9f01:77aa:1203:5be1:c0de:84f2:6d19"], &["::", "::1", "dead::beef", "ff02::1", "aa:bb:cc:dd:ee:ff:00:11", "12:34:56", "a::b"]),
            ("mac", &["00:1B:63:84:45:E6", "0011.2233.4455"], &["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "00:1B:63:84:45:E6:00"]),
        ];
        for (name, good, bad) in table {
            let (_, check) = CHECKS.iter().find(|(n, _)| n == name).unwrap();
            for value in *good {
                assert!(check(value), "{name} refuses {value:?}");
            }
            for value in *bad {
                assert!(!check(value), "{name} takes {value:?}");
            }
        }
        assert_eq!(table.len(), CHECKS.len(), "every check has values");
    }

    proptest! {
        #[test]
        fn luhn_catches_every_single_wrong_digit(body in "[1-9][0-9]{11,17}", at in 0usize..12, by in 1u32..10) {
            let check = (0..10).find(|d| luhn(&format!("{body}{d}")));
            prop_assume!(check.is_some());
            let good = format!("{body}{}", check.unwrap());
            let mut wrong = digits(&good).unwrap();
            wrong[at] = (wrong[at] + by) % 10;
            prop_assert!(!luhn_digits(&wrong));
        }

        #[test]
        fn iban_catches_every_single_wrong_digit(body in "[0-9]{18}", at in 4usize..22, by in 1u32..10) {
            let rest = remainder_97(format!("{body}DE00").chars()).unwrap();
            let good = format!("DE{:02}{body}", 98 - rest);
            prop_assert!(iban(&good));
            let mut wrong: Vec<char> = good.chars().collect();
            wrong[at] = char::from_digit((wrong[at].to_digit(10).unwrap() + by) % 10, 10).unwrap();
            prop_assert!(!iban(&wrong.into_iter().collect::<String>()));
        }

        #[test]
        fn no_check_panics(value in "\\PC{0,40}") {
            for (_, check) in CHECKS {
                check(&value);
            }
        }
    }
}
