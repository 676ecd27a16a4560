//! Checks of cryptocurrency addresses, keys and seed phrases: every one ends in a checksum.

use sha2::{Digest, Sha256};

use super::NamedCheck;

/// The checks of this file, by the name that detector files use.
pub(super) const CHECKS: &[NamedCheck] = &[
    ("bitcoin-base58", |value| {
        base58_version(value, &[0x00, 0x05])
    }),
    ("bitcoin-wif", |value| base58_version(value, &[0x80])),
    ("litecoin-base58", |value| {
        base58_version(value, &[0x30, 0x32])
    }),
    ("dogecoin-base58", |value| {
        base58_version(value, &[0x1e, 0x16])
    }),
    ("tron-base58", |value| base58_version(value, &[0x41])),
    ("ripple-base58", ripple),
    ("base58check", |value| base58check(value, BITCOIN).is_some()),
    ("solana", solana),
    ("bech32", bech32),
    ("ethereum", ethereum),
    ("monero", monero),
    ("seed-phrase", seed_phrase),
];

const BITCOIN: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const RIPPLE: &[u8; 58] = b"rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz";

/// Longer texts are no address, and base 58 takes quadratic time.
const MAX_BASE58: usize = 128;

fn base58(value: &str, alphabet: &[u8; 58]) -> Option<Vec<u8>> {
    if value.len() > MAX_BASE58 {
        return None;
    }
    let mut bytes: Vec<u8> = Vec::new();
    for c in value.bytes() {
        let mut carry = alphabet.iter().position(|known| *known == c)?;
        for byte in bytes.iter_mut().rev() {
            carry += usize::from(*byte) * 58;
            *byte = (carry & 0xff) as u8;
            carry >>= 8;
        }
        while carry > 0 {
            bytes.insert(0, (carry & 0xff) as u8);
            carry >>= 8;
        }
    }
    let zeros = value.bytes().take_while(|c| *c == alphabet[0]).count();
    bytes.splice(0..0, std::iter::repeat_n(0, zeros));
    Some(bytes)
}

/// The payload before four bytes of its double SHA-256.
fn base58check(value: &str, alphabet: &[u8; 58]) -> Option<Vec<u8>> {
    let mut bytes = base58(value, alphabet)?;
    let check = bytes.split_off(bytes.len().checked_sub(4)?);
    let hash = Sha256::digest(Sha256::digest(&bytes));
    (hash[..4] == check[..]).then_some(bytes)
}

fn base58_version(value: &str, versions: &[u8]) -> bool {
    base58check(value, BITCOIN)
        .and_then(|payload| payload.first().copied())
        .is_some_and(|version| versions.contains(&version))
}

fn ripple(value: &str) -> bool {
    base58check(value, RIPPLE).is_some_and(|payload| payload.len() == 21 && payload[0] == 0)
}

/// A public key; the format has no checksum.
fn solana(value: &str) -> bool {
    base58(value, BITCOIN).is_some_and(|key| key.len() == 32)
}

/// BIP-173 and BIP-350: a prefix, `1`, and thirty bits of checksum.
fn bech32(value: &str) -> bool {
    const ALPHABET: &str = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const BECH32: u32 = 1;
    const BECH32M: u32 = 0x2bc8_30a3;
    let mixed = value.chars().any(|c| c.is_ascii_lowercase())
        && value.chars().any(|c| c.is_ascii_uppercase());
    let text = value.to_ascii_lowercase();
    let Some((prefix, data)) = text.rsplit_once('1') else {
        return false;
    };
    let data: Option<Vec<u32>> = data
        .chars()
        .map(|c| ALPHABET.find(c).map(|at| at as u32))
        .collect();
    let Some(data) = data.filter(|data| data.len() >= 6 && !prefix.is_empty() && !mixed) else {
        return false;
    };
    let high = prefix.bytes().map(|c| u32::from(c) >> 5);
    let low = prefix.bytes().map(|c| u32::from(c) & 31);
    let rest = high.chain([0]).chain(low).chain(data).fold(1, bech32_step);
    rest == BECH32 || rest == BECH32M
}

fn bech32_step(rest: u32, value: u32) -> u32 {
    const GENERATOR: [u32; 5] = [
        0x3b6a_57b2,
        0x2650_8e6d,
        0x1ea1_19fa,
        0x3d42_33dd,
        0x2a14_62b3,
    ];
    let top = rest >> 25;
    let shifted = ((rest & 0x01ff_ffff) << 5) ^ value;
    (0..5)
        .filter(|bit| (top >> bit) & 1 == 1)
        .fold(shifted, |sum, bit| sum ^ GENERATOR[bit])
}

/// EIP-55: the case of the letters is the checksum. Written in one case, an address has none.
fn ethereum(value: &str) -> bool {
    let Some(hex) = value.strip_prefix("0x").filter(|hex| hex.len() == 40) else {
        return false;
    };
    let first = hex.chars().next();
    if !hex.chars().all(|c| c.is_ascii_hexdigit()) || hex.chars().all(|c| Some(c) == first) {
        return false;
    }
    let upper = hex.chars().any(|c| c.is_ascii_uppercase());
    let lower = hex.chars().any(|c| c.is_ascii_lowercase());
    if !(upper && lower) {
        return true;
    }
    let hash = keccak256(hex.to_ascii_lowercase().as_bytes());
    hex.chars().enumerate().all(|(at, c)| {
        let nibble = hash[at / 2] >> (4 * (1 - at % 2)) & 0xf;
        c.is_ascii_digit() || c.is_ascii_uppercase() == (nibble > 7)
    })
}

/// Blocks of eleven characters hold eight bytes; the last four bytes are a Keccak checksum.
fn monero(value: &str) -> bool {
    let mut bytes = Vec::new();
    for block in value.as_bytes().chunks(11) {
        let size = match block.len() {
            11 => 8,
            7 => 5,
            _ => return false,
        };
        let Some(number) = block.iter().try_fold(0u128, |sum, c| {
            let at = BITCOIN.iter().position(|known| known == c)?;
            Some(sum * 58 + at as u128)
        }) else {
            return false;
        };
        bytes.extend_from_slice(&number.to_be_bytes()[16 - size..]);
    }
    let Some(at) = bytes.len().checked_sub(4) else {
        return false;
    };
    let (payload, check) = bytes.split_at(at);
    matches!(payload.first(), Some(18 | 19 | 42)) && keccak256(payload)[..4] == *check
}

/// The word list of BIP-39, one a line, sorted.
const WORDS: &str = include_str!("../../../detectors/pii/bip39-english.txt");

/// BIP-39: somewhere in the text stand twelve to twenty-four words of the list whose last bits are
/// the checksum of the others. Words around them are let be, because a pattern cannot tell where a
/// phrase begins: `phrase` and `seed` are words of the list themselves.
fn seed_phrase(value: &str) -> bool {
    let list: Vec<&str> = WORDS.lines().collect();
    let words: Vec<Option<u16>> = value
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .map(|word| {
            let word = word.to_lowercase();
            list.binary_search(&word.as_str()).ok().map(|at| at as u16)
        })
        .collect();
    [24, 21, 18, 15, 12]
        .into_iter()
        .flat_map(|length| words.windows(length))
        .any(|window| {
            let window: Option<Vec<u16>> = window.iter().copied().collect();
            window.is_some_and(|indexes| phrase_holds(&indexes))
        })
}

fn phrase_holds(indexes: &[u16]) -> bool {
    let bits: Vec<bool> = indexes
        .iter()
        .flat_map(|index| (0..11).rev().map(move |bit| (index >> bit) & 1 == 1))
        .collect();
    let (entropy, check) = bits.split_at(bits.len() * 32 / 33);
    let bytes: Vec<u8> = entropy
        .chunks(8)
        .map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | u8::from(*bit)))
        .collect();
    let hash = Sha256::digest(&bytes);
    // One word over and over has a checksum like any other, and is a placeholder.
    let varied = indexes.iter().any(|index| *index != indexes[0]);
    varied
        && check
            .iter()
            .enumerate()
            .all(|(at, bit)| ((hash[at / 8] >> (7 - at % 8)) & 1 == 1) == *bit)
}

/// Keccak-256 as it was before SHA-3 changed its padding; no dependency has that one.
fn keccak256(input: &[u8]) -> [u8; 32] {
    const RATE: usize = 136;
    let mut padded = input.to_vec();
    padded.push(0x01);
    padded.resize(padded.len().next_multiple_of(RATE), 0);
    if let Some(last) = padded.last_mut() {
        *last |= 0x80;
    }
    let mut state = [0u64; 25];
    for block in padded.chunks(RATE) {
        for (lane, bytes) in state.iter_mut().zip(block.chunks(8)) {
            *lane ^= bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        }
        keccak_rounds(&mut state);
    }
    let mut out = [0; 32];
    for (bytes, lane) in out.chunks_mut(8).zip(state) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    out
}

/// Keccak-f[1600]; round constants and rotations are worked out as the specification defines them.
fn keccak_rounds(state: &mut [u64; 25]) {
    let mut register = 1u8;
    for _ in 0..24 {
        let column = |x: usize, s: &[u64; 25]| (0..5).fold(0, |sum, y| sum ^ s[x + 5 * y]);
        let columns: [u64; 5] = std::array::from_fn(|x| column(x, state));
        for (at, lane) in state.iter_mut().enumerate() {
            *lane ^= columns[(at + 4) % 5] ^ columns[(at % 5 + 1) % 5].rotate_left(1);
        }
        let (mut x, mut y) = (1, 0);
        let mut carried = state[1];
        for step in 0..24u32 {
            (x, y) = (y, (2 * x + 3 * y) % 5);
            let rotated = carried.rotate_left((step + 1) * (step + 2) / 2 % 64);
            carried = std::mem::replace(&mut state[x + 5 * y], rotated);
        }
        for row in state.chunks_mut(5) {
            let old: [u64; 5] = std::array::from_fn(|x| row[x]);
            for (x, lane) in row.iter_mut().enumerate() {
                *lane = old[x] ^ (!old[(x + 1) % 5] & old[(x + 2) % 5]);
            }
        }
        for bit in 0..7 {
            state[0] ^= u64::from(register & 1) << ((1u32 << bit) - 1);
            let feedback = if register & 0x80 == 0 { 0 } else { 0x71 };
            register = register << 1 ^ feedback;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_word_list_is_the_standard_one() {
        let hash = Sha256::digest(WORDS.as_bytes());
        let hex: Vec<String> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let hex = hex.concat();
        assert_eq!(
            hex,
            "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
        );
    }

    #[test]
    fn known_values_are_judged_right() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("bitcoin-base58", &["1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy"],
                &["1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb", "1A1zP1eP5QGefi2DMPTfTL5SLmv7Divf0a", "", "1"]),
            ("bitcoin-wif", &["5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ", "KwdMAjGmerYanjeui5SHS7JkmpZvVipYvB2LJGU1ZxJwYvP98617"],
                &["5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTK"]),
            ("litecoin-base58", &["LM2WMpR1Rp6j3Sa59cMXMs1SPzj9eXpGc1"], &["LM2WMpR1Rp6j3Sa59cMXMs1SPzj9eXpGc2", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"]),
            ("dogecoin-base58", &["DH5yaieqoZN36fDVciNyRueRGvGLR3mr7L"], &["DH5yaieqoZN36fDVciNyRueRGvGLR3mr7M"]),
            ("tron-base58", &["TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"], &["TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6u"]),
            ("ripple-base58", &["rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh", "rrrrrrrrrrrrrrrrrrrrrhoLvTp"], &["rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTi"]),
            ("base58check", &["xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet8"],
                &["xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet9"]),
            ("solana", &["So11111111111111111111111111111111111111112", "11111111111111111111111111111111"], &["1111111111111111111111111111111", "So1"]),
            ("bech32", &["bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
                "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"],
                &["bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5", "bc1Qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "bc1", "1qqqqqq"]),
            ("ethereum", &["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"],
                &["0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x0000000000000000000000000000000000000000", "0x5a"]),
            ("monero", &["888tNkZrPN6JsEgekjMnABU4TBzc2Dt29EPAvkRxbANsAnjyPbb3iQ1YBRk1UXcdRsiKc9dhwMVgN5S9cQUiyoogDavup3H"],
                &["888tNkZrPN6JsEgekjMnABU4TBzc2Dt29EPAvkRxbANsAnjyPbb3iQ1YBRk1UXcdRsiKc9dhwMVgN5S9cQUiyoogDavup3J", ""]),
            ("seed-phrase", &["legal winner thank year wave sausage worth useful legal winner thank yellow",
                "seed phrase legal winner thank year wave sausage worth useful legal winner thank yellow please"],
                &["legal winner thank year wave sausage worth useful legal winner thank year", "legal winner"]),
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

    #[test]
    fn keccak_is_the_one_before_sha3() {
        let hex = |input: &[u8]| -> String {
            let bytes = keccak256(input).map(|byte| format!("{byte:02x}"));
            bytes.concat()
        };
        assert_eq!(
            hex(b""),
            "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
        );
        assert_eq!(
            hex(b"abc"),
            "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"
        );
    }

    proptest! {
        #[test]
        fn bech32_catches_every_single_wrong_character(at in 4usize..42, by in 1usize..32) {
            const ALPHABET: &str = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
            let mut wrong: Vec<char> = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4".chars().collect();
            let old = ALPHABET.find(wrong[at]).unwrap();
            wrong[at] = ALPHABET.chars().nth((old + by) % 32).unwrap();
            prop_assert!(!bech32(&wrong.into_iter().collect::<String>()));
        }

        #[test]
        fn no_check_panics(value in "\\PC{0,140}") {
            for (_, check) in CHECKS {
                check(&value);
            }
        }
    }
}
