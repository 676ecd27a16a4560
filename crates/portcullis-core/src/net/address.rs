//! Addresses: how they are written, and what they reach.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address or a name reaches, if that is not the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// A cloud's metadata service, which hands out credentials.
    Metadata,
    /// This machine.
    Loopback,
    /// Any address of this machine.
    Unspecified,
    /// A private network.
    Private,
    /// The local link.
    LinkLocal,
    /// A carrier's network.
    CarrierNat,
    /// A group of machines.
    Multicast,
    /// Set aside, and routed nowhere in public.
    Reserved,
    /// A name that only a local resolver knows.
    LocalName,
}

impl Reach {
    /// For people, with its article.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "a cloud metadata service",
            Self::Loopback => "a loopback address",
            Self::Unspecified => "an unspecified address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::CarrierNat => "a carrier-grade NAT address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
            Self::LocalName => "a local name",
        }
    }
}

/// AWS and most others, ECS, EKS, Alibaba, Oracle, Azure's host.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// AWS, EKS, Google.
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// What an address reaches; `None` for the public internet.
pub fn reach(address: IpAddr) -> Option<Reach> {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Option<Reach> {
    if METADATA_V4.contains(&address) {
        return Some(Reach::Metadata);
    }
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (127, ..) => Reach::Loopback,
        (0, ..) => Reach::Unspecified,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Reach::Private,
        (169, 254, _) => Reach::LinkLocal,
        (100, 64..=127, _) => Reach::CarrierNat,
        (224..=239, ..) => Reach::Multicast,
        (192, 0, 0) | (198, 18..=19, _) | (240..=255, ..) => Reach::Reserved,
        _ => return None,
    })
}

fn reach_v6(address: Ipv6Addr) -> Option<Reach> {
    if METADATA_V6.contains(&address) {
        return Some(Reach::Metadata);
    }
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Reach::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Loopback,
        // Unique local, site-local, and the NAT64 prefix for local use.
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x0064, 0xff9b, 1, ..] => Reach::Private,
        [0xfe80..=0xfebf, ..] => Reach::LinkLocal,
        [0xff00..=0xffff, ..] => Reach::Multicast,
        segments => return embedded(segments).into_iter().flatten().find_map(reach_v4),
    })
}

/// The IPv4 addresses that an IPv6 address carries packets to.
fn embedded(segments: [u16; 8]) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| {
        let bits = (u32::from(high) << 16) | u32::from(low);
        Some(Ipv4Addr::from(bits))
    };
    match segments {
        // Teredo: its server, and its client with every bit turned over.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            [v4(server_high, server_low), v4(!high, !low)]
        }
        // Compatible, mapped, translated, NAT64, ISATAP; and 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x0064, 0xff9b, 0, 0, 0, 0, high, low]
        | [_, _, _, _, 0 | 0x0200, 0x5efe, high, low]
        | [0x2002, high, low, ..] => [v4(high, low), None],
        _ => [None, None],
    }
}

/// An IPv4 address in one to four parts, each decimal, octal (`0177`) or hexadecimal (`0x7f`).
///
/// The second reading is for clients that know four decimal numbers only, and take a leading zero for
/// nothing: to some `010.0.0.1` is 8.0.0.1, to others 10.0.0.1.
pub(super) fn parse_v4(text: &str) -> Option<(Ipv4Addr, Option<Ipv4Addr>)> {
    let octal = parse_v4_with(text, 8);
    let four = text.bytes().filter(|b| *b == b'.').count() == 3;
    let decimal = four.then(|| parse_v4_with(text, 10)).flatten();
    let address = octal.or(decimal)?;
    Some((address, decimal.filter(|other| *other != address)))
}

fn parse_v4_with(text: &str, leading_zero: u32) -> Option<Ipv4Addr> {
    let mut parts = [0; 4];
    let mut count = 0;
    for part in text.split('.') {
        *parts.get_mut(count)? = number(part, leading_zero)?;
        count += 1;
    }
    let (last, firsts) = parts[..count].split_last()?;
    let room = 8 * (5 - count);
    if firsts.iter().any(|part| *part > 255) || *last >> room != 0 {
        return None;
    }
    let firsts = firsts.iter().zip([24, 16, 8]);
    let bits = firsts.fold(*last, |bits, (part, shift)| bits | (part << shift));
    u32::try_from(bits).ok().map(Ipv4Addr::from)
}

fn number(text: &str, leading_zero: u32) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], leading_zero),
        _ => (text, 10),
    };
    if digits.is_empty() {
        return (radix == 16).then_some(0);
    }
    let valid = digits.chars().all(|c| c.is_digit(radix));
    // Parsing alone would take a sign.
    valid.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// An IPv6 address without brackets. A zone id does not change what it reaches from here.
pub(super) fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    text.split('%').next()?.parse().ok()
}
