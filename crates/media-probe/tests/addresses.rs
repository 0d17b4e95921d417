//! The address policy: every special range, every embedding, the operator's exemptions.

use std::net::IpAddr;

use media_probe::{AddressPolicy, Class, Network};

fn class(address: IpAddr) -> Option<Class> {
    AddressPolicy::default().allowed(address).err().map(|denied| denied.class)
}

#[test]
fn special_addresses_are_denied_by_kind() {
    for (address, expected) in [
        ("0.0.0.0", Class::Unspecified),
        ("0.1.2.3", Class::Unspecified),
        ("::", Class::Unspecified),
        ("127.0.0.1", Class::Loopback),
        ("127.255.255.254", Class::Loopback),
        ("::1", Class::Loopback),
        ("10.0.0.1", Class::Private),
        ("172.16.0.1", Class::Private),
        ("172.31.255.255", Class::Private),
        ("192.168.1.1", Class::Private),
        ("fc00::1", Class::Private),
        ("fd00:ec2::254", Class::Private),
        ("fec0::1", Class::Private),
        ("100.64.0.1", Class::Shared),
        ("100.100.100.200", Class::Shared),
        ("100.127.255.255", Class::Shared),
        ("169.254.169.254", Class::LinkLocal),
        ("fe80::1", Class::LinkLocal),
        ("febf::1", Class::LinkLocal),
        ("168.63.129.16", Class::Metadata),
        ("224.0.0.1", Class::Multicast),
        ("239.255.255.255", Class::Multicast),
        ("255.255.255.255", Class::Multicast),
        ("ff02::1", Class::Multicast),
        ("192.0.2.1", Class::Documentation),
        ("198.51.100.1", Class::Documentation),
        ("203.0.113.1", Class::Documentation),
        ("2001:db8::1", Class::Documentation),
        ("3fff::1", Class::Documentation),
        ("198.18.0.1", Class::Benchmarking),
        ("198.19.255.255", Class::Benchmarking),
        ("2001:2::1", Class::Benchmarking),
        ("192.88.99.1", Class::Tunnel),
        ("2002:7f00:1::", Class::Tunnel),
        ("2002:808:808::1", Class::Tunnel),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Class::Tunnel),
        ("64:ff9b:1::7f00:1", Class::Tunnel),
        ("192.0.0.8", Class::Reserved),
        ("240.0.0.1", Class::Reserved),
        ("2001:20::1", Class::Reserved),
        ("5f00::1", Class::Reserved),
        ("100::1", Class::Reserved),
        ("4000::1", Class::Reserved),
        // Embedded IPv4 addresses are judged as themselves.
        ("::ffff:127.0.0.1", Class::Loopback),
        ("::ffff:169.254.169.254", Class::LinkLocal),
        ("::ffff:0:10.0.0.1", Class::Private),
        ("::127.0.0.1", Class::Loopback),
        ("::10.0.0.1", Class::Private),
        ("64:ff9b::127.0.0.1", Class::Loopback),
        ("64:ff9b::a9fe:a9fe", Class::LinkLocal),
    ] {
        assert_eq!(class(address.parse().unwrap()), Some(expected), "{address}");
    }
}

#[test]
fn public_addresses_are_allowed() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "11.0.0.1",
        "169.253.0.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
        "2001:4860::8888",
        "2001:200::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ] {
        assert_eq!(class(address.parse().unwrap()), None, "{address}");
    }
}

#[test]
fn hosts_in_any_spelling_are_judged_as_their_address() {
    let policy = AddressPolicy::default();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0x7f.1",
        "127.0.0.1.",
        "0",
        "0x0",
        "0.0.0.0",
        "[::1]",
        "::1",
        "[::ffff:7f00:1]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "0xA9.0xFE.43518",
        "[0:0:0:0:0:0:0:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "10.1",
        "192.168.257",
    ] {
        assert!(matches!(policy.allowed_host(host), Some(Err(_))), "{host}");
    }
    for name in
        ["localhost", "example.com", "1.2.3.4.5", "256.1.1.1.", "0xg", "08", "4294967296", "1.256.1", "", "."]
    {
        assert_eq!(policy.allowed_host(name), None, "{name}");
    }
    assert_eq!(policy.allowed_host("8.8.8.8"), Some(Ok(())));
    assert_eq!(policy.allowed_host("134744072"), Some(Ok(())));
}

#[test]
fn exemptions_cover_their_network_and_nothing_else() {
    let networks = ["127.0.0.0/8", "fd00:1::/32", "10.1.2.3"].map(|text| text.parse::<Network>().unwrap());
    let policy = AddressPolicy::new(networks.to_vec());
    for (address, expected) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::ffff:127.0.0.1", true),
        ("fd00:1::5", true),
        ("fd00:2::5", false),
        ("10.1.2.3", true),
        ("10.1.2.4", false),
        ("169.254.169.254", false),
        ("::1", false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(policy.allowed(address).is_ok(), expected, "{address}");
    }
    let everything = AddressPolicy::new(vec!["0.0.0.0/0".parse().unwrap()]);
    assert!(everything.allowed("127.0.0.1".parse().unwrap()).is_ok());
    assert!(everything.allowed("::1".parse().unwrap()).is_err());
}

#[test]
fn networks_are_parsed_strictly() {
    for text in ["", "127.0.0.0/33", "::/129", "127.0.0/8", "localhost/8", "1.2.3.4/x", "/8", "1.2.3.4/-1"] {
        assert!(text.parse::<Network>().is_err(), "{text}");
    }
    assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
}
