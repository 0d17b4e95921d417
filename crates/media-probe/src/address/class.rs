//! Kinds of addresses, from the IANA special-purpose registries (RFC 6890 and what updates it).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of address that media is not fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// "This host", `0.0.0.0/8` and `::`.
    Unspecified,
    /// The host itself.
    Loopback,
    /// Private networks: RFC 1918, unique local, the old site-local.
    Private,
    /// Carrier-grade NAT, `100.64.0.0/10`.
    Shared,
    /// Link-local, where cloud metadata services live.
    LinkLocal,
    /// A cloud's metadata or host service on a public-looking address.
    Metadata,
    /// Multicast and broadcast.
    Multicast,
    /// Documentation.
    Documentation,
    /// Benchmarking.
    Benchmarking,
    /// Tunnels with an IPv4 address inside: 6to4, Teredo, a local NAT64.
    Tunnel,
    /// Reserved, or assigned to protocols.
    Reserved,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "shared by a carrier",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a metadata service",
            Self::Multicast => "multicast",
            Self::Documentation => "for documentation",
            Self::Benchmarking => "for benchmarking",
            Self::Tunnel => "inside a tunnel",
            Self::Reserved => "reserved",
        })
    }
}

/// Returns the IPv4 address inside an IPv6 one: mapped (`::ffff:0:0/96`), translated (`::ffff:0:0:0/96`), compatible
/// (`::/96`), NAT64 (`64:ff9b::/96`).
pub(super) fn embedded(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let inner = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            true
        }
        [0, 0, 0, 0, 0, 0, high, low] => high != 0 || low > 1,
        _ => false,
    };
    let [.., a, b, c, d] = address.octets();
    inner.then(|| IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
}

/// Returns what kind of special address this is; `None` for public unicast.
pub(super) fn classify(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> Option<Class> {
    Some(match address.octets() {
        [0, ..] => Class::Unspecified,
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private,
        [100, 64..=127, ..] => Class::Shared,
        [169, 254, ..] => Class::LinkLocal,
        [168, 63, 129, 16] => Class::Metadata,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Documentation,
        [198, 18 | 19, ..] => Class::Benchmarking,
        [192, 88, 99, _] => Class::Tunnel,
        [192, 0, 0, _] | [192, 31, 196, _] | [192, 52, 193, _] | [192, 175, 48, _] => Class::Reserved,
        [224..=239, ..] | [255, 255, 255, 255] => Class::Multicast,
        [240..=255, ..] => Class::Reserved,
        _ => return None,
    })
}

fn v6(address: Ipv6Addr) -> Option<Class> {
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0x64, 0xff9b, 1, ..] | [0x2002, ..] | [0x2001, 0, ..] => Class::Tunnel,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        [0x2001, 2, 0, ..] => Class::Benchmarking,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Documentation,
        [0x2001, 1..=0x1ff, ..] => Class::Reserved,
        [0x2000..=0x3fff, ..] => return None,
        _ => Class::Reserved,
    })
}
