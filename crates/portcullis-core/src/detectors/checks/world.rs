//! Check digits of the identity and tax numbers of America, Asia, Africa and Oceania.

use super::NamedCheck;
use super::europe::year_first;
use super::personal::{digits, exactly, is_day, luhn_digits, number, plain, uniform, weighted};

/// The checks of this file, by the name that detector files use.
pub(super) const CHECKS: &[NamedCheck] = &[
    ("ar-cuit", ar_cuit),
    ("au-abn", au_abn),
    ("au-medicare", au_medicare),
    ("au-tfn", au_tfn),
    ("br-cnpj", br_cnpj),
    ("br-cpf", br_cpf),
    ("ca-sin", ca_sin),
    ("cl-rut", cl_rut),
    ("cn-resident-id", cn_resident_id),
    ("hk-id", hk_id),
    ("il-id", il_id),
    ("in-aadhaar", in_aadhaar),
    ("jp-my-number", jp_my_number),
    ("kr-rrn", kr_rrn),
    ("kr-rrn-date", kr_rrn_date),
    ("mx-curp", mx_curp),
    ("mx-rfc", mx_rfc),
    ("sg-nric", sg_nric),
    ("th-id", th_id),
    ("tr-tckn", tr_tckn),
    ("tw-id", tw_id),
    ("us-itin", us_itin),
    ("us-ssn", us_ssn),
    ("za-id", za_id),
];

/// A kind of person, the identity number, and eleven less the remainder.
fn ar_cuit(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let sum = weighted(&d[..10], &[5, 4, 3, 2, 7, 6, 5, 4, 3, 2]);
        matches!(number(&d[..2]), 20 | 23..=27 | 30 | 33 | 34) && (11 - sum % 11) % 11 == d[10]
    })
}

/// The first digit less one, and 89.
fn au_abn(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|mut d| {
        let whole = d[0] > 0;
        d[0] = d[0].saturating_sub(1);
        let sum = weighted(&d, &[10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19]);
        whole && sum.is_multiple_of(89)
    })
}

/// Eight digits, the check digit, the issue, and perhaps the person on the card.
fn au_medicare(value: &str) -> bool {
    digits(value).is_some_and(|d| {
        matches!(d.len(), 10 | 11)
            && (2..=6).contains(&d[0])
            && !uniform(&d)
            && weighted(&d[..8], &[1, 3, 7, 9, 1, 3, 7, 9]) % 10 == d[8]
    })
}

fn au_tfn(value: &str) -> bool {
    digits(value).is_some_and(|d| {
        let sum = match d.len() {
            8 => weighted(&d, &[10, 7, 8, 4, 6, 3, 5, 1]),
            9 => weighted(&d, &[1, 4, 3, 7, 5, 8, 6, 9, 10]),
            _ => return false,
        };
        !uniform(&d) && sum.is_multiple_of(11)
    })
}

/// The check digit of Brazil: eleven less the remainder, or zero.
fn br_check(sum: u32) -> u32 {
    match sum % 11 {
        0 | 1 => 0,
        rest => 11 - rest,
    }
}

fn br_cnpj(value: &str) -> bool {
    const WEIGHTS: [u32; 13] = [6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2];
    exactly::<14>(value).is_some_and(|d| {
        !uniform(&d)
            && br_check(weighted(&d[..12], &WEIGHTS[1..])) == d[12]
            && br_check(weighted(&d[..13], &WEIGHTS)) == d[13]
    })
}

fn br_cpf(value: &str) -> bool {
    const WEIGHTS: [u32; 10] = [11, 10, 9, 8, 7, 6, 5, 4, 3, 2];
    exactly::<11>(value).is_some_and(|d| {
        !uniform(&d)
            && br_check(weighted(&d[..9], &WEIGHTS[1..])) == d[9]
            && br_check(weighted(&d[..10], &WEIGHTS)) == d[10]
    })
}

/// Luhn; no province starts with 0 or 8.
fn ca_sin(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| !matches!(d[0], 0 | 8) && !uniform(&d) && luhn_digits(&d))
}

/// Weights 2 to 7 from the right; ten is written K.
fn cl_rut(value: &str) -> bool {
    let text = plain(value);
    let Some((body, check)) = text.split_at_checked(text.len().saturating_sub(1)) else {
        return false;
    };
    let Some(d) = digits(body).filter(|d| (7..=8).contains(&d.len()) && !uniform(d)) else {
        return false;
    };
    let weights = (2..=7).cycle();
    let sum: u32 = d.iter().rev().zip(weights).map(|(d, w)| d * w).sum();
    let expected = match 11 - sum % 11 {
        11 => "0".to_owned(),
        10 => "K".to_owned(),
        rest => rest.to_string(),
    };
    check == expected
}

/// Region, day of birth, serial, and ISO 7064 mod 11-2, where ten is written X.
fn cn_resident_id(value: &str) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    const CHARACTERS: &[u8; 11] = b"10X98765432";
    let text = plain(value);
    let Some(d) = text.get(..17).and_then(exactly::<17>) else {
        return false;
    };
    let check = CHARACTERS[(weighted(&d, &WEIGHTS) % 11) as usize];
    matches!(number(&d[..2]), 11..=82)
        && matches!(number(&d[6..10]), 1900..=2099)
        && is_day(number(&d[10..12]), number(&d[12..14]))
        && text.as_bytes()[17..] == [check]
}

fn il_id(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| !uniform(&d) && luhn_digits(&d))
}

/// Verhoeff's scheme; never starts with 0 or 1. Three years in a row are no number.
fn in_aadhaar(value: &str) -> bool {
    exactly::<12>(value).is_some_and(|d| {
        let years = d
            .chunks(4)
            .all(|group| (1900..2100).contains(&number(group)));
        d[0] > 1 && !years && !uniform(&d) && verhoeff(&d)
    })
}

/// Whether the product of the digits in the group of the pentagon, permuted by place, is zero.
fn verhoeff(digits: &[u32]) -> bool {
    const PERMUTED: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let product = digits.iter().rev().enumerate().fold(0, |sum, (at, d)| {
        let digit = (0..at % 8).fold(*d, |digit, _| PERMUTED[digit as usize]);
        pentagon(sum, digit)
    });
    product == 0
}

/// The group of the turns (0 to 4) and flips (5 to 9) of a pentagon.
fn pentagon(a: u32, b: u32) -> u32 {
    match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => (a + b) % 5 + 5,
        (false, true) => (a - b) % 5 + 5,
        (false, false) => (a + 5 - b) % 5,
    }
}

fn jp_my_number(value: &str) -> bool {
    exactly::<12>(value).is_some_and(|d| {
        let rest = weighted(&d[..11], &[6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11;
        !uniform(&d) && d[11] == if rest < 2 { 0 } else { 11 - rest }
    })
}

/// The day of birth and the sex; numbers since October 2020 have no check digit.
fn kr_rrn_date(value: &str) -> bool {
    exactly::<13>(value).is_some_and(|d| year_first(&d) && (1..=8).contains(&d[6]))
}

fn kr_rrn(value: &str) -> bool {
    kr_rrn_date(value)
        && exactly::<13>(value).is_some_and(|d| {
            let sum = weighted(&d[..12], &[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5]);
            (11 - sum % 11) % 10 == d[12]
        })
}

/// Letters of the name, day of birth, sex, state, and a check digit with weights 18 to 2.
fn mx_curp(value: &str) -> bool {
    let text = plain(value);
    if text.len() != 18
        || !text
            .get(4..10)
            .and_then(exactly::<6>)
            .is_some_and(|d| year_first(&d))
    {
        return false;
    }
    // Ñ is the letter after N in the table, so the letters behind it count one more.
    let values: Option<Vec<u32>> = text
        .chars()
        .map(|c| c.to_digit(36).map(|v| if v > 23 { v + 1 } else { v }))
        .collect();
    values.is_some_and(|v| {
        let sum: u32 = v[..17].iter().zip((2..=18).rev()).map(|(v, w)| v * w).sum();
        (10 - sum % 10) % 10 == v[17]
    })
}

/// Letters of the name and a day. The check character is wrong on many that were given out.
fn mx_rfc(value: &str) -> bool {
    let text = plain(value);
    let start = text.len().saturating_sub(9);
    matches!(start, 3 | 4)
        && text
            .get(start..start + 6)
            .and_then(exactly::<6>)
            .is_some_and(|d| year_first(&d))
}

/// Weights 2, 7, 6, 5, 4, 3, 2; the first letter picks the table of the last one.
fn sg_nric(value: &str) -> bool {
    let text = plain(value);
    let Some(d) = text.get(1..8).and_then(exactly::<7>) else {
        return false;
    };
    let sum = weighted(&d, &[2, 7, 6, 5, 4, 3, 2]);
    let (offset, table) = match text.as_bytes()[0] {
        b'S' => (0, b"JZIHGFEDCBA"),
        b'T' => (4, b"JZIHGFEDCBA"),
        b'F' => (0, b"XWUTRQPNMLK"),
        b'G' => (4, b"XWUTRQPNMLK"),
        b'M' => (3, b"XWUTRQPNJLK"),
        _ => return false,
    };
    text.as_bytes()[8..] == [table[((sum + offset) % 11) as usize]]
}

fn th_id(value: &str) -> bool {
    exactly::<13>(value).is_some_and(|d| {
        let sum = weighted(&d[..12], &[13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
        d[0] != 0 && !uniform(&d) && (11 - sum % 11) % 10 == d[12]
    })
}

/// Digit ten from the odd and even places, digit eleven from all before it.
fn tr_tckn(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let odd = d[0] + d[2] + d[4] + d[6] + d[8];
        let even = d[1] + d[3] + d[5] + d[7];
        let sum: u32 = d[..10].iter().sum();
        d[0] != 0 && (odd * 7 + 100 - even) % 10 == d[9] && sum % 10 == d[10]
    })
}

/// The letter stands for two digits.
fn tw_id(value: &str) -> bool {
    const LETTERS: &str = "ABCDEFGHJKLMNPQRSTUVXYWZIO";
    let text = plain(value);
    let Some(letter) = text
        .chars()
        .next()
        .and_then(|c| LETTERS.find(c))
        .map(|at| at as u32 + 10)
    else {
        return false;
    };
    text.get(1..).and_then(exactly::<9>).is_some_and(|d| {
        let sum = letter / 10 + letter % 10 * 9 + weighted(&d, &[8, 7, 6, 5, 4, 3, 2, 1, 1]);
        matches!(d[0], 1 | 2 | 8 | 9) && sum.is_multiple_of(10)
    })
}

/// Areas from 900 with the groups that are given out for taxes.
fn us_itin(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| {
        d[0] == 9 && matches!(number(&d[3..5]), 50..=65 | 70..=88 | 90..=92 | 94..=99)
    })
}

/// No area, group or serial of zeros, no area 666 or from 900, and not the two that were printed in
/// advertisements.
fn us_ssn(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| {
        let (area, group, serial) = (number(&d[..3]), number(&d[3..5]), number(&d[5..]));
        matches!(area, 1..=665 | 667..=899)
            && group > 0
            && serial > 0
            && !uniform(&d)
            && !matches!((area, group, serial), (78, 5, 1120) | (219, 9, 9999))
    })
}

/// The day of birth, a serial, citizenship, and Luhn.
fn za_id(value: &str) -> bool {
    exactly::<13>(value).is_some_and(|d| year_first(&d) && d[10] < 3 && luhn_digits(&d))
}

/// One letter or two, six digits, and the remainder of 11; a letter that is missing counts as a blank.
fn hk_id(value: &str) -> bool {
    let plain = plain(value);
    let letters = plain.chars().take_while(char::is_ascii_uppercase).count();
    let (head, tail) = plain.split_at(letters);
    let worth = |c: char| c.to_digit(36);
    let mut values: Vec<u32> = match letters {
        1 => vec![36],
        2 => Vec::new(),
        _ => return false,
    };
    values.extend(head.chars().filter_map(worth));
    let shape = tail.len() == 7
        && tail.bytes().take(6).all(|b| b.is_ascii_digit())
        && tail.ends_with(|c: char| c.is_ascii_digit() || c == 'A');
    values.extend(tail.chars().filter_map(worth));
    shape && weighted(&values, &[9, 8, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values_are_judged_right() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("ar-cuit", &["20-05536168-2", "20267565393"], &["20-05536168-3", "99-05536168-2"]),
            ("au-abn", &["83 914 571 673", "51824753556"], &["83 914 571 674", "03914571673"]),
            ("au-medicare", &["2123 45670 1"], &["2123 45671 1", "9123 45670 1"]),
            ("au-tfn", &["123 456 782", "37118629"], &["123 456 783", "1234567"]),
            ("br-cnpj", &["16.727.230/0001-97"], &["16.727.230/0001-98", "00.000.000/0000-00"]),
            ("br-cpf", &["390.533.447-05", "52998224725"], &["390.533.447-06", "111.111.111-11"]),
            ("ca-sin", &["130 692 544", "123-456-782"], &["123-456-783", "046 454 286"]),
            ("cl-rut", &["12.531.909-2", "12345678-5", "10000013-K"], &["12.531.909-3", "5", ""]),
            ("cn-resident-id", &["11010519491231002X"], &["110105194912310021", "440524188001010014", "11010519491331002X", "1101051949123100"]),
            ("hk-id", &["A123456(3)", "A1234563"], &["A123456(4)", "1234563", "ABC123456(3)", "A12345(3)", "A12345B(3)", ""]),
            ("il-id", &["039337423", "123456782"], &["039337424", "000000000"]),
            ("in-aadhaar", &["2341 2341 2346"], &["2341 2341 2347", "1341 2341 2346", "2001 2002 2003"]),
            ("jp-my-number", &["1234 5678 9018"], &["1234 5678 9012"]),
            ("kr-rrn", &["810101-2123451"], &["810101-2123452"]),
            ("kr-rrn-date", &["210101-3123456"], &["211301-3123456", "210101-9123456"]),
            ("mx-curp", &["BOXW310820HNERXN09"], &["BOXW310820HNERXN08", "BOXW311320HNERXN09"]),
            ("mx-rfc", &["GODE561231GR8", "MAB9307148T4"], &["GODE561331GR8", "GODE"]),
            ("sg-nric", &["S1234567D", "F1234567N", "G1234567X", "T1234567J"], &["S1234567A", "A1234567D", "S123456"]),
            ("th-id", &["1-1017-00230-70-8", "7100600445638"], &["7100600445639"]),
            ("tr-tckn", &["10000000146", "17291716060"], &["10000000147", "07291716060"]),
            ("tw-id", &["A123456789"], &["A123456788", "A323456789", "1123456789"]),
            ("us-itin", &["912-90-3456", "900-70-0000"], &["912-89-3456", "812-90-3456"]),
            ("us-ssn", &["536-90-4399"], &["666-12-3456", "000-12-3456", "536-00-4399", "536-90-0000", "900-12-3456", "078-05-1120"]),
            ("za-id", &["8001015009087", "7503305044089"], &["8001015009088", "8013015009087"]),
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
        fn verhoeff_catches_every_single_wrong_digit(body in "[2-9][0-9]{10}", at in 0usize..12, by in 1u32..10) {
            let good = (0..10)
                .filter_map(|d| digits(&format!("{body}{d}")))
                .find(|digits| verhoeff(digits));
            let mut wrong = good.unwrap();
            wrong[at] = (wrong[at] + by) % 10;
            prop_assert!(!verhoeff(&wrong));
        }

        #[test]
        fn verhoeff_catches_swapped_neighbours(body in "[2-9][0-9]{10}", at in 0usize..11) {
            let good = (0..10)
                .filter_map(|d| digits(&format!("{body}{d}")))
                .find(|digits| verhoeff(digits));
            let mut wrong = good.unwrap();
            prop_assume!(wrong[at] != wrong[at + 1]);
            wrong.swap(at, at + 1);
            prop_assert!(!verhoeff(&wrong));
        }

        #[test]
        fn no_check_panics(value in "\\PC{0,40}") {
            for (_, check) in CHECKS.iter().chain(super::super::europe::CHECKS) {
                check(&value);
            }
        }

        #[test]
        fn no_check_panics_on_its_alphabet(value in "[A-Z0-9 ./-]{0,20}") {
            for (_, check) in CHECKS.iter().chain(super::super::europe::CHECKS) {
                check(&value);
            }
        }
    }
}
