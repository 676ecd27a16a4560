//! Whether a PEM frame holds what it says.
//!
//! The lines of a certificate look like those of a private key. Who puts a key between the dashes of a certificate must not
//! hide it by that: what is inside tells the two apart.

use super::NamedCheck;
use super::secrets::base64;
use super::tokens::{key_line, private_der};

pub(super) const CHECKS: &[NamedCheck] = &[("misframed-key", misframed_key)];

/// Lines that could be a key's, after a gap.
const MOST_AFTER_GAP: usize = 2;

/// Lines that could be a private key's, in a frame for something public that they are not.
fn misframed_key(value: &str) -> bool {
    let value = value.replace("\\n", "\n").replace("\\r", "\n");
    // A line of dots stands for what was left out, and with it ends what can be read.
    let is_mark = |c: char| !(c.is_ascii_alphanumeric() || "+/=.[".contains(c));
    let lines = || value.lines().map(|line| line.trim_matches(is_mark));
    if !lines().any(key_line) {
        return false;
    }
    // Who leaves out the middle prints the last line or two. More of them could be anything.
    let is_gap = |line: &str| (line.contains('.') || line.contains('[')) && !is_header(line);
    let after_gap = lines().skip_while(|line| !is_gap(line));
    if after_gap.filter(|line| key_line(line)).count() > MOST_AFTER_GAP {
        return true;
    }
    // Armour begins with headers and ends with a checksum.
    let body: String = lines()
        .filter(|line| !line.contains(':') && !line.starts_with('='))
        .collect();
    let end = body.find(|c: char| !(c.is_ascii_alphanumeric() || "+/".contains(c)));
    let body = &body[..end.unwrap_or(body.len())];
    let whole = body.len() - body.len() % 4;
    let bytes = base64(&body[..whole]).unwrap_or_default();
    private_der(&body[..whole]) || !(is_der(&bytes) || is_openpgp(&bytes) || is_ssh(&bytes))
}

/// `Version: GnuPG v2.0.22`, as armour and encrypted keys have it.
fn is_header(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(name, _)| {
        name.len() >= 3 && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
    })
}

/// A sequence whose parts are sequences, sets and values that end where the one around them does, as far as it goes: what
/// is printed is often cut short.
fn is_der(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x30)
        && element(bytes).is_some_and(|(_, inside, after)| after.is_empty() && fits(inside, 0))
}

/// The tag, what is inside as far as it is there, and what comes after.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // Without a length it ends with all the rest (BER).
        0x80 => (rest.len(), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let len = digits
                .iter()
                .fold(0, |len, digit| len << 8 | usize::from(*digit));
            (len, rest)
        }
        _ => return None,
    };
    let (inside, after) = rest.split_at(len.min(rest.len()));
    Some((*tag, inside, after))
}

fn fits(mut bytes: &[u8], depth: usize) -> bool {
    const DEEPEST: usize = 12;
    // A header that is cut off.
    while bytes.len() > 4 {
        // The end of what has no length.
        if let Some(rest) = bytes.strip_prefix(&[0, 0]) {
            bytes = rest;
            continue;
        }
        let Some((tag, inside, after)) = element(bytes) else {
            return false;
        };
        let fit = match tag {
            0x30 | 0x31 | 0xa0..=0xa3 => depth < DEEPEST && fits(inside, depth + 1),
            0x01..=0x0c | 0x12..=0x1e | 0x80..=0x8f => true,
            _ => false,
        };
        if !fit {
            return false;
        }
        bytes = after;
    }
    true
}

/// A packet of a public key, a signature or a message (RFC 9580).
fn is_openpgp(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first().filter(|first| **first & 0x80 != 0) else {
        return false;
    };
    let tag = if first & 0x40 == 0 {
        first >> 2 & 0xf
    } else {
        first & 0x3f
    };
    matches!(tag, 1..=4 | 6 | 8 | 9 | 11 | 13 | 14 | 18 | 20)
}

/// The length of the name of an algorithm, and the name.
fn is_ssh(bytes: &[u8]) -> bool {
    let name = match bytes {
        [0, 0, 0, len @ 4..=64, rest @ ..] => rest.get(..usize::from(*len)),
        _ => None,
    };
    name.is_some_and(|name| name.iter().all(u8::is_ascii_graphic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "RHtUVQcDMpg0TMkxpdzPaEMM1ZA7V0FhHVJWDBt2hWdQZUm14QhoxhLPAbQcEFUV";

    /// A certificate, and the first lines of a public key as SSH has it and of a signature as PGP has it.
    const PUBLIC: [&str; 3] = [
        "MIIBmjCCAT+gAwIBAgIUZPCfoUwjmzyo0SkhbvB+YTzPKhIwCgYIKoZIzj0EAwIw\nIjERMA8GA1UEAwwIYWNtZS5kZXYxDTALBgNVBAoMBEFjbWUwHhcNMjYxMTE3MDM1\nOTM2WhcNMjYxMTE5MDM1OTM2WjAiMREwDwYDVQQDDAhhY21lLmRldjENMAsGA1UE\nCgwEQWNtZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNAWcgwfrnUCXyV1Wvr1\nseHfjITj/9bmNe1dc954uqYpXYtrtpLi347zE3Y2h4ogOcvvZDl4P3p/b0zs6caJ\nDZyjUzBRMB0GA1UdDgQWBBQPC2coFNRVx/R1b1EylVPsOpRw2jAfBgNVHSMEGDAW\ngBQPC2coFNRVx/R1b1EylVPsOpRw2jAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49\nBAMCA0kAMEYCIQC1rZ+6iusiEULOveeHsc/4UNNCAi7uEtSOJJ1IVWq4xAIhAOZr\nCcy8YkD8USg7ibfZYrRb48hbJkmvknWmdDP8xzzn",
        "AAAAB3NzaC1yc2EAAAADAQABAAABAQ\nRHtUVQcDMpg0TMkxpdzPaEMM1ZA7V0FhHVJWDBt2hWdQZUm14QhoxhLPAbQcEFUV",
        "Version: GnuPG v2\n\niQEzBAABCAAdFiEE\nRHtUVQcDMpg0TMkxpdzPaEMM1ZA7V0FhHVJWDBt2hWdQZUm14QhoxhLPAbQcEFUV\n=ab12",
    ];

    #[test]
    fn what_is_public_may_be_framed() {
        for text in PUBLIC {
            assert!(!misframed_key(text), "{text}");
            assert!(!misframed_key(&text.replace('\n', "\\n")), "{text}");
        }
        let lines: Vec<&str> = PUBLIC[0].lines().collect();
        for cut in 1..lines.len() {
            let end = lines.len().saturating_sub(MOST_AFTER_GAP).max(cut);
            let [first, last] = [&lines[..cut], &lines[end..]].map(|part| part.join("\n"));
            assert!(!misframed_key(&format!("{first}\n...\n{last}")), "{cut}");
            assert!(!misframed_key(&format!("{first}\n[...]\n{last}")), "{cut}");
        }
        assert!(!misframed_key("too short to be a key"));
    }

    #[test]
    fn a_version_is_no_gap() {
        let lines = [LINE; 3].join("\n");
        let armour = format!("Version: GnuPG v2.0.22\n\niQEzBAABCAAdFiEE\n{lines}\n=ab12");
        assert!(!misframed_key(&armour));
        assert!(misframed_key(&armour.replace("iQEz", "AQEz")));
    }

    #[test]
    fn a_key_in_the_frame_of_another_is_told_by_what_it_is() {
        assert!(misframed_key(LINE));
        assert!(misframed_key(&format!("MIIEvQIBADAN\n{LINE}\n{LINE}")));
        // A line of a certificate, and what was left out of it is made up for by others.
        let first = PUBLIC[0].lines().next().unwrap();
        assert!(misframed_key(&format!(
            "{first}\n...\n{LINE}\n{LINE}\n{LINE}"
        )));
        // The beginning of a certificate, and then no certificate.
        assert!(misframed_key(&format!("MIIBdTCCARug\n{LINE}\n{LINE}")));
    }

    proptest! {
        #[test]
        fn any_frame_can_be_read(text in "[A-Za-z0-9+/=:\\\\\n -]{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            misframed_key(&text);
            misframed_key(&format!("{text}\n{LINE}"));
            is_der(&bytes);
            is_openpgp(&bytes);
            is_ssh(&bytes);
        }
    }
}
