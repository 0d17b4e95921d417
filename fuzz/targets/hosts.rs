//! Hosts and addresses: what is allowed is public, by a second opinion.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use media_probe::{AddressPolicy, Network};

fuzz_target!(|text: &str| {
    let policy = AddressPolicy::default();
    let spelled = policy.allowed_host(text);
    if let Ok(address) = text.parse::<IpAddr>() {
        assert_eq!(spelled, Some(policy.allowed(address)));
        if policy.allowed(address).is_ok() {
            let inner = match address {
                IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
                IpAddr::V4(_) => address,
            };
            assert!(!inner.is_loopback() && !inner.is_unspecified() && !inner.is_multicast());
            if let IpAddr::V4(v4) = inner {
                assert!(
                    !v4.is_private() && !v4.is_link_local() && !v4.is_broadcast() && !v4.is_documentation()
                );
            }
        }
    }
    // A URL parser that reads the host as an address must not find one that the policy allows under another name.
    if let Ok(url) = url::Url::parse(&format!("http://{text}/"))
        && let (Some(url::Host::Ipv4(address)), Some(answer)) = (url.host(), spelled)
        && url.username().is_empty()
        && url.path() == "/"
        && url.port().is_none()
    {
        assert_eq!(answer.is_ok(), policy.allowed(IpAddr::V4(address)).is_ok(), "{address}");
    }
    if let Ok(network) = text.parse::<Network>() {
        let again: Network = network.to_string().parse().unwrap();
        assert_eq!(network, again);
    }
});
