//! Check digits of the identity and tax numbers of Europe.

use super::NamedCheck;
use super::personal::{digits, exactly, is_day, luhn_digits, number, plain, uniform, weighted};

/// The checks of this file, by the name that detector files use.
pub(super) const CHECKS: &[NamedCheck] = &[
    ("at-svnr", at_svnr),
    ("baltic-code", baltic_code),
    ("be-national", be_national),
    ("bg-egn", bg_egn),
    ("ch-ahv", ch_ahv),
    ("cz-birth-number", cz_birth_number),
    ("de-id-card", de_id_card),
    ("de-social-insurance", de_social_insurance),
    ("de-tax-id", de_tax_id),
    ("dk-cpr", dk_cpr),
    ("es-dni", es_dni),
    ("fi-hetu", fi_hetu),
    ("fr-nir", fr_nir),
    ("gb-nhs", gb_nhs),
    ("gb-nino", gb_nino),
    ("gr-amka", gr_amka),
    ("hr-oib", hr_oib),
    ("ie-pps", ie_pps),
    ("it-codice-fiscale", it_codice_fiscale),
    ("nl-bsn", nl_bsn),
    ("no-fodselsnummer", no_fodselsnummer),
    ("pl-pesel", pl_pesel),
    ("pt-nif", pt_nif),
    ("ro-cnp", ro_cnp),
    ("ru-inn", ru_inn),
    ("ru-snils", ru_snils),
    ("se-personnummer", se_personnummer),
    ("ua-rnokpp", ua_rnokpp),
];

/// Day, month and two digits of the year, as six digits at the start.
fn day_first(d: &[u32]) -> bool {
    is_day(number(&d[2..4]), number(&d[..2]))
}

/// Two digits of the year, month and day, as six digits at the start.
pub(super) fn year_first(d: &[u32]) -> bool {
    is_day(number(&d[2..4]), number(&d[4..6]))
}

/// Three digits, the check digit, and the day of birth.
fn at_svnr(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| {
        let sum = weighted(&d, &[3, 7, 9, 0, 5, 8, 4, 2, 1, 6]);
        d[0] != 0
            && sum % 11 == d[3]
            && number(&d[4..6]) <= 31
            && (1..=13).contains(&number(&d[6..8]))
    })
}

/// Century and sex, the day of birth, a serial, and the remainder of 11 by the first weights that leave less than 10.
fn baltic_code(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let weights = [
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 1],
            [3, 4, 5, 6, 7, 8, 9, 1, 2, 3],
        ];
        let mut rests = weights
            .iter()
            .map(|weights| weighted(&d[..10], weights) % 11);
        let check = rests.find(|rest| *rest < 10).unwrap_or(0);
        (1..=8).contains(&d[0]) && year_first(&d[1..]) && check == d[10]
    })
}

/// Area, day of birth, an initial, and a serial; the letter counts as its place in the alphabet.
fn de_social_insurance(value: &str) -> bool {
    let plain = plain(value);
    let mut digits = Vec::new();
    for c in plain.chars() {
        match c {
            '0'..='9' => digits.push(u32::from(c) - u32::from('0')),
            'A'..='Z' if digits.len() == 8 => {
                let place = u32::from(c) - u32::from('A') + 1;
                digits.extend([place / 10, place % 10]);
            }
            _ => return false,
        }
    }
    let Ok(d) = <[u32; 13]>::try_from(digits) else {
        return false;
    };
    let weights = [2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1];
    let products = d.iter().zip(weights).map(|(digit, weight)| digit * weight);
    let sum: u32 = products.map(|product| product / 10 + product % 10).sum();
    // A day that is taken has 50 added.
    is_day(number(&d[4..6]), number(&d[2..4]) % 50) && sum % 10 == d[12]
}

/// The day of birth, a serial, and Luhn's check digit.
fn gr_amka(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| day_first(&d) && luhn_digits(&d))
}

/// ISO 7064, modulus 11 and 10.
fn hr_oib(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let rest = d[..10].iter().fold(10, |rest, digit| {
            let sum = (rest + digit) % 10;
            (if sum == 0 { 10 } else { sum }) * 2 % 11
        });
        !uniform(&d) && (11 - rest) % 10 == d[10]
    })
}

/// The day of birth, a serial, and 97 less the remainder; a 2 before it from the year 2000 on.
fn be_national(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let body = number(&d[..9]);
        let check = number(&d[9..]);
        year_first(&d)
            && [body, body + 2_000_000_000]
                .iter()
                .any(|n| 97 - n % 97 == check)
    })
}

/// Months count from 21 before 1900 and from 41 after 1999.
fn bg_egn(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| {
        let sum = weighted(&d[..9], &[2, 4, 8, 5, 10, 9, 7, 3, 6]);
        is_day(number(&d[2..4]) % 20, number(&d[4..6])) && sum % 11 % 10 == d[9]
    })
}

/// An EAN-13 that starts with the number of Switzerland.
fn ch_ahv(value: &str) -> bool {
    exactly::<13>(value).is_some_and(|d| d[..3] == [7, 5, 6] && ean_13(&d))
}

fn ean_13(d: &[u32; 13]) -> bool {
    weighted(d, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1]).is_multiple_of(10)
}

/// Women's months count from 51; twenty more when a day ran out of serials.
fn cz_birth_number(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| {
        let month = match number(&d[2..4]) {
            month @ 51.. => month - 50,
            month => month,
        };
        let whole = number(&d);
        let holds = whole.is_multiple_of(11) || (number(&d[..9]) % 11 == 10 && d[9] == 0);
        let month = if month > 20 { month - 20 } else { month };
        is_day(month, number(&d[4..6])) && holds
    })
}

/// Nine characters and a check digit, weights 7, 3, 1.
fn de_id_card(value: &str) -> bool {
    let text = plain(value);
    let values: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(36)).collect();
    values.is_some_and(|v| {
        v.len() == 10
            && v[9] < 10
            && text.chars().any(|c| c.is_ascii_digit())
            && weighted(&v[..9], &[7, 3, 1, 7, 3, 1, 7, 3, 1]) % 10 == v[9]
    })
}

/// ISO 7064 mod 11, 10; among the first ten digits one comes twice or three times, the others once.
fn de_tax_id(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let mut times = [0; 10];
        for digit in &d[..10] {
            times[*digit as usize] += 1;
        }
        let repeated: Vec<u32> = times.into_iter().filter(|n| *n > 1).collect();
        d[0] != 0 && matches!(repeated[..], [2 | 3]) && mod_11_10(&d)
    })
}

fn mod_11_10(d: &[u32]) -> bool {
    let product = d[..d.len() - 1].iter().fold(10, |product, digit| {
        let sum = (digit + product) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == d[d.len() - 1]
}

/// A day of birth and a serial. The check digit was given up in 2007.
fn dk_cpr(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| day_first(&d))
}

/// The remainder of 23 picks the letter; X, Y and Z stand for 0, 1 and 2.
fn es_dni(value: &str) -> bool {
    const LETTERS: &[u8; 23] = b"TRWAGMYFPDXBNJZSQVHLCKE";
    let text = plain(value);
    let body = match text.chars().next() {
        Some('X') => text.replacen('X', "0", 1),
        Some('Y') => text.replacen('Y', "1", 1),
        Some('Z') => text.replacen('Z', "2", 1),
        _ => text,
    };
    let Some((number, letter)) = body.split_at_checked(8) else {
        return false;
    };
    number
        .parse()
        .is_ok_and(|n: usize| n > 0 && letter.as_bytes() == [LETTERS[n % 23]])
}

/// The day of birth, a sign for the century, a serial, and the remainder of 31.
fn fi_hetu(value: &str) -> bool {
    const CHARACTERS: &[u8; 31] = b"0123456789ABCDEFHJKLMNPRSTUVWXY";
    let bytes = value.as_bytes();
    if bytes.len() != 11 || !value.is_ascii() {
        return false;
    }
    let Some(d) = exactly::<9>(&format!("{}{}", &value[..6], &value[7..10])) else {
        return false;
    };
    day_first(&d)
        && number(&d[6..]) > 1
        && CHARACTERS[(number(&d) % 31) as usize] == bytes[10].to_ascii_uppercase()
}

/// Sex, year, month, department, commune, serial, and 97 less the remainder. Corsica's 2A and 2B
/// count as 19 and 18.
fn fr_nir(value: &str) -> bool {
    let text = plain(value).replacen("2A", "19", 1).replacen("2B", "18", 1);
    exactly::<15>(&text).is_some_and(|d| {
        let month = number(&d[3..5]);
        matches!(d[0], 1 | 2 | 7 | 8)
            && matches!(month, 1..=12 | 20 | 30..=42 | 50..=99)
            && 97 - number(&d[..13]) % 97 == number(&d[13..])
    })
}

/// Weights 10 to 2, and 11 less the remainder.
fn gb_nhs(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| {
        let sum = weighted(&d[..9], &[10, 9, 8, 7, 6, 5, 4, 3, 2]);
        !uniform(&d) && (11 - sum % 11) % 11 == d[9]
    })
}

/// No check digit, but letters and pairs that are never given out.
fn gb_nino(value: &str) -> bool {
    let text = plain(value);
    let bytes = text.as_bytes();
    bytes.len() == 9
        && !["BG", "GB", "KN", "NK", "NT", "TN", "ZZ"].contains(&text.get(..2).unwrap_or("ZZ"))
        && bytes[..2]
            .iter()
            .all(|c| b"ABCEGHJKLMNOPRSTWXYZ".contains(c))
        && bytes[1] != b'O'
        && bytes[2..8].iter().all(u8::is_ascii_digit)
        && (b'A'..=b'D').contains(&bytes[8])
}

/// Seven digits, the remainder of 23 as a letter, and perhaps a second letter, which counts nine times.
fn ie_pps(value: &str) -> bool {
    let text = plain(value);
    let bytes = text.as_bytes();
    let Some(d) = text.get(..7).and_then(exactly::<7>) else {
        return false;
    };
    let second = match bytes[7..] {
        [_, last @ b'A'..=b'I'] => u32::from(last - b'A' + 1),
        [_] | [_, b'W'] => 0,
        _ => return false,
    };
    let rest = (weighted(&d, &[8, 7, 6, 5, 4, 3, 2]) + second * 9) % 23;
    let letter = if rest == 0 {
        b'W'
    } else {
        b'A' + rest as u8 - 1
    };
    bytes[7] == letter
}

/// Odd places count by a table, even ones by their value; the remainder of 26 is the last letter.
fn it_codice_fiscale(value: &str) -> bool {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24,
        23,
    ];
    let text = plain(value);
    let places: Option<Vec<u32>> = text
        .chars()
        .map(|c| c.to_digit(36).map(|v| if v > 9 { v - 10 } else { v }))
        .collect();
    let Some(places) = places.filter(|places| places.len() == 16) else {
        return false;
    };
    let sum: u32 = places[..15]
        .iter()
        .enumerate()
        .map(|(at, v)| if at % 2 == 0 { ODD[*v as usize] } else { *v })
        .sum();
    text.ends_with(|c: char| c.is_ascii_alphabetic()) && sum % 26 == places[15]
}

/// Weights 9 to 2, and the last digit taken off.
fn nl_bsn(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| {
        let sum = weighted(&d[..8], &[9, 8, 7, 6, 5, 4, 3, 2]);
        !uniform(&d) && sum % 11 == d[8]
    })
}

/// The day of birth, a serial, and two check digits.
fn no_fodselsnummer(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        // Temporary numbers add 40 to the day or to the month.
        let (day, month) = (number(&d[..2]), number(&d[2..4]));
        is_day(month % 40, day % 40)
            && weighted(&d[..10], &[3, 7, 6, 1, 8, 9, 4, 5, 2, 1]).is_multiple_of(11)
            && weighted(&d, &[5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
    })
}

/// The month tells the century; weights 1, 3, 7, 9.
fn pl_pesel(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        is_day(number(&d[2..4]) % 20, number(&d[4..6]))
            && weighted(&d, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]).is_multiple_of(10)
    })
}

/// Weights 9 to 2; the first digit says whose number it is.
fn pt_nif(value: &str) -> bool {
    exactly::<9>(value).is_some_and(|d| {
        let rest = weighted(&d[..8], &[9, 8, 7, 6, 5, 4, 3, 2]) % 11;
        d[0] != 0 && !uniform(&d) && d[8] == if rest < 2 { 0 } else { 11 - rest }
    })
}

/// Sex and century, the day of birth, county, serial, check digit.
fn ro_cnp(value: &str) -> bool {
    exactly::<13>(value).is_some_and(|d| {
        let sum = weighted(&d[..12], &[2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9]);
        let rest = sum % 11;
        (1..=8).contains(&d[0])
            && year_first(&d[1..])
            && matches!(number(&d[7..9]), 1..=48 | 51 | 52 | 70)
            && d[12] == if rest == 10 { 1 } else { rest }
    })
}

/// Ten digits for a company, twelve for a person, with one and two check digits.
fn ru_inn(value: &str) -> bool {
    const WEIGHTS: [u32; 11] = [3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8];
    let Some(d) = digits(value) else {
        return false;
    };
    let holds = |at: usize| weighted(&d[..at], &WEIGHTS[11 - at..]) % 11 % 10 == d[at];
    match d.len() {
        10 => !uniform(&d) && holds(9),
        12 => !uniform(&d) && holds(10) && holds(11),
        _ => false,
    }
}

/// Weights 9 to 1, and the remainder of 101.
fn ru_snils(value: &str) -> bool {
    exactly::<11>(value).is_some_and(|d| {
        let sum = weighted(&d[..9], &[9, 8, 7, 6, 5, 4, 3, 2, 1]);
        !uniform(&d[..9]) && u64::from(sum % 101 % 100) == number(&d[9..])
    })
}

/// The day of birth, a serial, and Luhn over ten digits; coordination numbers add 60 to the day.
fn se_personnummer(value: &str) -> bool {
    let text = value.replace('+', "-");
    let Some(all) = digits(&text) else {
        return false;
    };
    let century = match all.len() {
        10 => &[],
        12 => &all[..2],
        _ => return false,
    };
    let d = &all[century.len()..];
    matches!(century, [] | [1, 8 | 9] | [2, 0])
        && is_day(number(&d[2..4]), number(&d[4..6]) % 60)
        && luhn_digits(d)
}

/// Days since 1899, a serial, and a check digit.
fn ua_rnokpp(value: &str) -> bool {
    exactly::<10>(value).is_some_and(|d| {
        let signed: i64 = d[..9]
            .iter()
            .zip([-1, 5, 7, 9, 4, 6, 10, 5, 7])
            .map(|(d, w)| i64::from(*d) * w)
            .sum();
        !uniform(&d) && signed.rem_euclid(11) % 10 == i64::from(d[9])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_judged_right() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("at-svnr", &["1237 010180"], &["1238 010180", "1237 410180", "123"]),
            ("baltic-code", &["37605030299"], &["37605030298", "37613030299", "97605030299", "3760503029"]),
            ("be-national", &["85.07.30-033.28", "17073003384"], &["85.07.30-033.29", "85.13.30-033.28"]),
            ("bg-egn", &["7523169263", "8032056031"], &["7523169264", "7533169263"]),
            ("ch-ahv", &["756.9217.0769.85", "7569217076985"], &["756.9217.0769.84", "4006381333931"]),
            ("cz-birth-number", &["736028/5163", "780123/3540"], &["736028/5164", "739928/5163"]),
            ("de-id-card", &["T220001293", "L01X00T471"], &["T220001294", "T22000129"]),
            ("de-social-insurance", &["65 170839 J 003", "65170839j003"], &["65 170839 J 004", "65 173939 J 003", "651708390003", "6J170839 J 003", "ä"]),
            ("de-tax-id", &["86095742719", "47036892816", "65929970489"], &["86095742718", "12345678901", "01234567890"]),
            ("dk-cpr", &["070761-4285", "0707614285"], &["320761-4285"]),
            ("es-dni", &["12345678Z", "X1234567L", "12.345.678-Z"], &["12345678A", "X1234567A", "00000000T", "1234567ñZ"]),
            ("fi-hetu", &["131052-308T", "010101A123N"], &["131052-308U", "321052-308T", "13105-2308T"]),
            ("fr-nir", &["2 55 08 14 168 025 38", "255081416802538"], &["255081416802539", "355081416802538"]),
            ("gb-nhs", &["943 476 5919"], &["943 476 5918", "000 000 0000"]),
            ("gb-nino", &["AB 12 34 56 C", "JG103759A"], &["GB123456A", "DA123456C", "AB123456E", "AO123456A"]),
            ("gr-amka", &["14038512340"], &["14038512341", "33038512340"]),
            ("hr-oib", &["69435151530"], &["69435151531", "00000000000", "6943515153"]),
            ("ie-pps", &["1234567T", "1234567FA"], &["1234567U", "1234567", "123456T"]),
            ("it-codice-fiscale", &["RSSMRA85T10A562S", "mrtmtt25d09f205z"], &["RSSMRA85T10A562T", "RSSMRA85T10A56"]),
            ("nl-bsn", &["111222333", "123456782"], &["111222334", "000000000"]),
            ("no-fodselsnummer", &["11077941012", "15108695088"], &["11077941013", "99077941012"]),
            ("pl-pesel", &["44051401359", "02070803628"], &["44051401358", "44991401359"]),
            ("pt-nif", &["501964843", "123456789"], &["501964844", "000000000"]),
            ("ro-cnp", &["1630615123457"], &["1630615123458", "9630615123457"]),
            ("ru-inn", &["7707083893", "500100732259"], &["7707083894", "500100732258", "12345678901"]),
            ("ru-snils", &["112-233-445 95"], &["112-233-445 96", "000-000-000 00"]),
            ("se-personnummer", &["811228-9874", "19811228-9874", "811228+9874"], &["811228-9873", "811328-9874", "8112289"]),
            ("ua-rnokpp", &["1759013776"], &["1759013777"]),
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
}
