//! Every range by its edges: the last address before it, its first, its last, the first one after it.

use std::net::IpAddr;

use proptest::prelude::*;

use super::{Addresses, Special};

fn of(text: &str) -> Option<Special> {
    Special::of(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

#[test]
fn every_range_is_known_by_its_edges() {
    use Special::{LinkLocal, Loopback, Multicast, Private, Reserved, Unspecified};
    let ranges = [
        (None, "0.0.0.0", "0.255.255.255", Some("1.0.0.0"), Unspecified),
        (Some("9.255.255.255"), "10.0.0.0", "10.255.255.255", Some("11.0.0.0"), Private),
        (Some("100.63.255.255"), "100.64.0.0", "100.127.255.255", Some("100.128.0.0"), Private),
        (Some("126.255.255.255"), "127.0.0.0", "127.255.255.255", Some("128.0.0.0"), Loopback),
        (Some("169.253.255.255"), "169.254.0.0", "169.254.255.255", Some("169.255.0.0"), LinkLocal),
        (Some("172.15.255.255"), "172.16.0.0", "172.31.255.255", Some("172.32.0.0"), Private),
        (Some("191.255.255.255"), "192.0.0.0", "192.0.0.255", Some("192.0.1.0"), Reserved),
        (Some("192.0.1.255"), "192.0.2.0", "192.0.2.255", Some("192.0.3.0"), Reserved),
        (Some("192.88.98.255"), "192.88.99.0", "192.88.99.255", Some("192.88.100.0"), Reserved),
        (Some("192.167.255.255"), "192.168.0.0", "192.168.255.255", Some("192.169.0.0"), Private),
        (Some("198.17.255.255"), "198.18.0.0", "198.19.255.255", Some("198.20.0.0"), Reserved),
        (Some("198.51.99.255"), "198.51.100.0", "198.51.100.255", Some("198.51.101.0"), Reserved),
        (Some("203.0.112.255"), "203.0.113.0", "203.0.113.255", Some("203.0.114.0"), Reserved),
        (Some("223.255.255.255"), "224.0.0.0", "239.255.255.255", None, Multicast),
        (None, "240.0.0.0", "255.255.255.255", None, Reserved),
        (None, "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Private),
        (None, "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, LinkLocal),
        (None, "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Reserved),
        (None, "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Multicast),
        (
            Some("2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            "2001::",
            "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("2001:200::"),
            Reserved,
        ),
        (
            Some("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff"),
            "2001:db8::",
            "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("2001:db9::"),
            Reserved,
        ),
        (
            Some("3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            "3fff::",
            "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
            Some("3fff:1000::"),
            Reserved,
        ),
        (None, "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", None, Reserved),
        (None, "4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None, Reserved),
    ];
    for (before, first, last, after, special) in ranges {
        assert_eq!(of(first), Some(special), "{first}");
        assert_eq!(of(last), Some(special), "{last}");
        for public in before.into_iter().chain(after) {
            assert_eq!(of(public), None, "{public}");
        }
    }
}

#[test]
fn an_ipv4_address_inside_an_ipv6_address_is_checked() {
    for (text, special) in [
        ("::ffff:127.0.0.1", Some(Special::Loopback)),
        ("::ffff:169.254.169.254", Some(Special::Metadata)),
        ("::ffff:93.184.216.34", None),
        ("64:ff9b::10.0.0.1", Some(Special::Private)),
        ("64:ff9b::93.184.216.34", None),
        ("2002:7f00:1::", Some(Special::Loopback)),
        ("2002:a9fe:a9fe::1", Some(Special::Metadata)),
        ("2002:5db8:d822::1", None),
        // Compatible, translated, Teredo, the local NAT64 prefix: none of these is a service on the internet.
        ("::127.0.0.1", Some(Special::Reserved)),
        ("::93.184.216.34", Some(Special::Reserved)),
        ("::ffff:0:127.0.0.1", Some(Special::Reserved)),
        ("2001:0:5db8:d822::f5ff:fffe", Some(Special::Reserved)),
        ("64:ff9b:1::93.184.216.34", Some(Special::Reserved)),
    ] {
        assert_eq!(of(text), special, "{text}");
    }
}

#[test]
fn metadata_services_are_rejected_in_private_networks_too() {
    for text in [
        "169.254.169.254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
    ] {
        let address: IpAddr = text.parse().expect("an address");
        assert_eq!(Addresses::Private.check(address), Err(Special::Metadata), "{text}");
        assert_eq!(Addresses::Public.check(address), Err(Special::Metadata), "{text}");
        assert_eq!(Addresses::Any.check(address), Ok(()), "{text}");
    }
}

#[test]
fn private_allows_private_networks_and_this_machine_only() {
    for text in ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "fd12::1", "93.184.216.34"] {
        assert_eq!(Addresses::Private.check(text.parse().expect("an address")), Ok(()), "{text}");
    }
    for text in ["0.0.0.0", "::", "169.254.1.1", "fe80::1", "224.0.0.1", "255.255.255.255", "192.0.2.1"] {
        assert!(Addresses::Private.check(text.parse().expect("an address")).is_err(), "{text}");
    }
}

proptest! {
    /// What the standard library calls special is special here, however it is wrapped.
    #[test]
    fn every_special_address_of_the_standard_library_is_special_here(bits: u32, low in 0u8..=255) {
        let address = std::net::Ipv4Addr::from_bits(bits & 0x00ff_ffff | u32::from(low) << 24);
        let known = address.is_private() || address.is_loopback() || address.is_link_local()
            || address.is_broadcast() || address.is_documentation() || address.is_multicast()
            || address.is_unspecified();
        let plain = Special::of(IpAddr::V4(address));
        prop_assert!(plain.is_some() || !known, "{address}");
        prop_assert_eq!(plain, Special::of(IpAddr::V6(address.to_ipv6_mapped())));
        prop_assert!(Special::of(IpAddr::V6(address.to_ipv6_compatible())).is_some());
    }

    #[test]
    fn ipv6_is_public_only_in_2000_to_3fff(bits: u128) {
        let address = std::net::Ipv6Addr::from_bits(bits);
        let inside = matches!(address.segments(), [0x2000..=0x3fff, ..]);
        prop_assert!(inside || Special::of(IpAddr::V6(address)).is_some(), "{address}");
    }
}
