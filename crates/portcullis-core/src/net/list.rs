//! Lists of hosts, as policies write them.

use core::net::IpAddr;
use std::collections::BTreeSet;

use serde::Serialize;

use super::host::{Host, is_under};

/// Hosts, addresses and networks.
///
/// `a.example` is that host, `*.a.example` is `a.example` and everything below it, `10.1.2.3` is an
/// address in whatever notation, and `10.0.0.0/8` a network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HostList {
    names: BTreeSet<String>,
    suffixes: BTreeSet<String>,
    networks: BTreeSet<(IpAddr, u8)>,
}

/// What is wrong with an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a host: write `a.example`, `*.a.example`, an address, or a network such as `10.0.0.0/8`"
)]
pub struct HostListError(String);

impl HostList {
    /// Adds an entry.
    pub fn insert(&mut self, entry: &str) -> Result<(), HostListError> {
        let wrong = || HostListError(entry.to_owned());
        if let Some((network, bits)) = entry.split_once('/') {
            let network: IpAddr = network.parse().map_err(|_| wrong())?;
            let most = if network.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            self.networks.insert((network, bits.ok_or_else(wrong)?));
            return Ok(());
        }
        let bare = entry.strip_prefix("*.");
        if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            self.networks.insert((address, bits));
            return Ok(());
        }
        let host = Host::parse(bare.unwrap_or(entry)).ok_or_else(wrong)?;
        match (host, bare) {
            (Host::Name(name), _) if name.contains('*') => return Err(wrong()),
            (Host::Name(name), Some(_)) => self.suffixes.insert(name.into_owned()),
            (Host::Name(name), None) => self.names.insert(name.into_owned()),
            (_, _) => return Err(wrong()),
        };
        Ok(())
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.suffixes.is_empty() && self.networks.is_empty()
    }

    /// Whether the host is on the list, whichever way a client reads it. One that is known by its
    /// ending only is on none.
    pub fn contains(&self, host: &Host<'_>) -> bool {
        match host {
            Host::Name(name) => self.names.contains(&**name) || self.has_suffix_of(name),
            Host::Ending(_) => false,
            _ => host.addresses().all(|address| self.has_network_of(address)),
        }
    }

    /// Whether the host is on the list to some client, or is below what is on it.
    pub fn may_contain(&self, host: &Host<'_>) -> bool {
        match host {
            Host::Name(_) => self.contains(host),
            Host::Ending(end) => self.has_suffix_of(end.trim_start_matches('.')),
            _ => host.addresses().any(|address| self.has_network_of(address)),
        }
    }

    /// Whether a name with such an ending is below what is on the list, whatever is put in before.
    pub fn contains_ending(&self, host: &Host<'_>) -> bool {
        let Host::Ending(end) = host else {
            return false;
        };
        let mut suffixes = self.suffixes.iter();
        // `b.example` alone may be the end of `evilb.example`.
        suffixes.any(|suffix| {
            let rest = end.strip_suffix(suffix.as_str());
            rest.is_some_and(|rest| rest.ends_with('.'))
        })
    }

    fn has_suffix_of(&self, name: &str) -> bool {
        self.suffixes.iter().any(|suffix| is_under(name, suffix))
    }

    fn has_network_of(&self, address: IpAddr) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|(network, bits)| is_in(address, *network, *bits))
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(u32::from(address)),
            u128::from(u32::from(network)),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.into(), network.into(), 128),
        _ => return false,
    };
    let shift = width - u32::from(bits);
    let prefix = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
    prefix(address) == prefix(network)
}
