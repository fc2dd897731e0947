//! Which addresses may be connected to.
//!
//! A name says nothing about where it leads: its owner can point it at the metadata service or at another process on
//! loopback, and change that between two lookups. So the check is about the address, after the lookup, and the connection
//! is made to the address that was checked.
//!
//! The check lists what is public rather than what is dangerous, where that is possible: of IPv6 only `2000::/3` is
//! assigned, so every other address is rejected without being listed. An IPv6 address that a translator or a tunnel turns
//! into an IPv4 address (mapped, NAT64, 6to4) is checked as that one. Teredo, the compatible form and the local NAT64
//! prefix hold no public service and are rejected as a whole.
//!
//! [`Addresses`] is a value without state, so that every connection pool can have its own. The address of a pooled
//! connection is not checked again, so two callers with different [`Addresses`] need two pools.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses may be connected to.
///
/// ```
/// use talaria_egress::{Addresses, Special};
///
/// let metadata = "169.254.169.254".parse()?;
/// assert_eq!(Addresses::Public.check(metadata), Err(Special::Metadata));
/// assert_eq!(Addresses::Private.check(metadata), Err(Special::Metadata));
/// assert_eq!(Addresses::Public.check("::ffff:10.0.0.1".parse()?), Err(Special::Private));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// All of them, because the operator named the destination.
    Any,
    /// Those on the internet, in private networks and of this machine, but not metadata services.
    Private,
    /// Those on the internet only.
    Public,
}

/// The purpose of an address that is not a host on the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// A service that hands out the machine's cloud credentials. Some are in private or even in public ranges.
    Metadata,
    /// "This host"; a connection to it reaches loopback.
    Unspecified,
    /// This machine.
    Loopback,
    /// A private network: RFC 1918, unique local, and the range that carriers and overlays share.
    Private,
    /// The same network link.
    LinkLocal,
    /// A group of hosts.
    Multicast,
    /// Reserved for documentation, benchmarks or protocols, or not assigned.
    Reserved,
}

// === impl Addresses ===

impl Addresses {
    /// Checks whether this address may be connected to.
    ///
    /// # Errors
    /// The purpose of an address that may not.
    pub fn check(self, address: IpAddr) -> Result<(), Special> {
        match (self, Special::of(address)) {
            (Self::Any, _) | (_, None) | (Self::Private, Some(Special::Loopback | Special::Private)) => {
                Ok(())
            }
            (Self::Private | Self::Public, Some(special)) => Err(special),
        }
    }
}

// === impl Special ===

impl Special {
    /// The purpose of this address; `None` for a host on the internet.
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        Some(match address.octets() {
            // Nearly every cloud; Alibaba; Oracle; Azure's host agent.
            [169, 254, 169, 254] | [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => {
                Self::Metadata
            }
            [0, ..] => Self::Unspecified,
            [127, ..] => Self::Loopback,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            [169, 254, ..] => Self::LinkLocal,
            [224..=239, ..] => Self::Multicast,
            // Protocols and documentation; 6to4 relays; benchmarks; documentation; the rest and broadcast.
            [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [240..=255, ..] => Self::Reserved,
            _ => return None,
        })
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        Some(match address.segments() {
            // AWS, Google, Oracle, Scaleway.
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
            | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
            | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
            | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42] => Self::Metadata,
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            // Mapped, NAT64, 6to4.
            [0, 0, 0, 0, 0, 0xffff, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x2002, high, low, ..] => {
                return Self::of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
            }
            [0xfc00..=0xfdff, ..] => Self::Private,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            [0xff00..=0xffff, ..] => Self::Multicast,
            // Protocols, Teredo among them; documentation, twice.
            [0x2001, 0..=0x01ff | 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Reserved,
            [0x2000..=0x3fff, ..] => return None,
            _ => Self::Reserved,
        })
    }
}

/// As messages say it: `a private address`.
impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "a metadata service",
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

#[cfg(test)]
mod tests;
