//! Which network addresses media may be fetched from.

mod class;
mod network;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use class::Class;
pub use network::{Network, NetworkError};

/// An address that the policy denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("address {address} is {class}")]
pub struct Denied {
    /// The address as it was asked for.
    pub address: IpAddr,
    /// What kind of address it is.
    pub class: Class,
}

/// Allows public unicast addresses and the operator's exemptions, and nothing else.
///
/// Ask for *every* address that a name resolves to and that a redirect leads to, and connect to the one that was asked
/// for: resolving again would give a hostile resolver a second answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    allow_networks: Vec<Network>,
}

impl AddressPolicy {
    /// Creates a policy with networks that are allowed whatever they are.
    #[must_use]
    pub const fn new(allow_networks: Vec<Network>) -> Self {
        Self { allow_networks }
    }

    /// Decides about one address.
    ///
    /// An IPv4 address inside an IPv6 one (mapped, compatible, NAT64) is judged as itself.
    ///
    /// # Errors
    /// When the address is not public unicast and no exemption covers it: don't connect, and answer the request with 400.
    pub fn allowed(&self, address: IpAddr) -> Result<(), Denied> {
        let inner = class::embedded(address).unwrap_or(address);
        if self.allow_networks.iter().any(|network| network.contains(address) || network.contains(inner)) {
            return Ok(());
        }
        match class::classify(inner) {
            None => Ok(()),
            Some(class) => Err(Denied { address, class }),
        }
    }

    /// Decides about a host that is spelled as an address in the way of `inet_aton`: decimal, octal or hexadecimal parts,
    /// one to four of them. `None` for a name.
    ///
    /// URL parsers rewrite such hosts to plain addresses; this is for hosts that come by other ways.
    #[must_use]
    pub fn allowed_host(&self, host: &str) -> Option<Result<(), Denied>> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let (address, zone) = bare.split_once('%').unwrap_or((bare, ""));
        let address = match address.parse::<Ipv6Addr>() {
            Ok(address) => IpAddr::V6(address),
            Err(_) if !zone.is_empty() => return None,
            Err(_) => IpAddr::V4(loose(bare.strip_suffix('.').unwrap_or(bare))?),
        };
        Some(self.allowed(address))
    }
}

/// Parses an IPv4 address as `inet_aton` does.
fn loose(host: &str) -> Option<Ipv4Addr> {
    let parts = host.split('.').map(part).collect::<Option<Vec<_>>>()?;
    let (last, heads) = parts.split_last()?;
    if heads.len() > 3 || heads.iter().any(|head| *head > 255) {
        return None;
    }
    let free = 8 * (4 - heads.len());
    if u64::from(*last) >> free != 0 {
        return None;
    }
    let high = heads.iter().enumerate().fold(0_u32, |sum, (index, head)| sum | head << (24 - 8 * index));
    Some(Ipv4Addr::from(high | last))
}

fn part(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some("") => Some(0),
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if !lower.bytes().all(|byte| byte.is_ascii_digit()) => None,
        None if lower.len() > 1 && lower.starts_with('0') => u32::from_str_radix(&lower, 8).ok(),
        None => lower.parse().ok(),
    }
}
