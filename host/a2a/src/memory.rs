//! The memory that requests and responses take.
//!
//! A request is charged for its head, for its body as it arrives and for the tree that the body becomes; a response for its
//! bytes until the connection has sent them, wherever they wait; a stream for its state. All of them together may take half
//! of the host's budget, so that peers that send slowly or do not read leave the other half to turns; those of a caller that
//! has a share, the same part of that half. What does not fit is rejected as busy (HTTP 429).
//!
//! A request is rejected only as long as it has changed nothing. So reads make sure of the room for their response before
//! they read, and a response is then charged in any case: a caller whose message was accepted must hear of it.

use bytes::Bytes;
use http::request::Parts;
use talaria_budget::{Budget, Charge, Full};

/// A response of fewer bytes is not charged: a connection holds more than that in any case.
const SMALL: usize = 4 << 10;
/// What a request takes beside its head: its future, and its share of the connection.
const REQUEST: usize = 8 << 10;
/// What an open stream takes. An idle one takes 26 KiB, as `cargo xtask bench streams` measures it.
pub(crate) const STREAM: usize = 32 << 10;
/// The bytes of the tasks on one page of a list.
pub(crate) const PAGE: usize = 4 << 20;

/// Bytes that are charged for as long as they are in memory.
struct Held {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the part of the host's budget for requests and responses.
pub(crate) fn share(whole: &Budget) -> Budget {
    whole.share(whole.limit() / 2)
}

/// Charges a request for its head.
pub(crate) fn request(charge: &mut Charge, head: &Parts) -> Result<(), Full> {
    let headers: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let uri = head.uri.path_and_query().map_or(0, |uri| uri.as_str().len());
    charge.grow(REQUEST + headers + uri)
}

/// Makes sure that there is room for a response of about this many bytes.
pub(crate) fn room(budget: &Budget, bytes: usize) -> Result<(), Full> {
    budget.charge(bytes.min(budget.limit())).map(drop)
}

/// Charges a response until it is sent, even beyond the limit.
pub(crate) fn hold(budget: &Budget, bytes: Vec<u8>) -> Bytes {
    let mut charge = budget.nothing();
    if bytes.len() > SMALL {
        charge.force(bytes.capacity());
    }
    held(bytes, charge)
}

/// Charges a frame of a stream until it is sent, if it fits.
pub(crate) fn try_hold(budget: &Budget, bytes: Vec<u8>) -> Result<Bytes, Full> {
    let charge = budget.charge(if bytes.len() > SMALL { bytes.capacity() } else { 0 })?;
    Ok(held(bytes, charge))
}

fn held(bytes: Vec<u8>, charge: Charge) -> Bytes {
    match charge.bytes() {
        0 => bytes.into(),
        _ => Bytes::from_owner(Held { bytes, _charge: charge }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_charged_until_its_last_byte_is_gone() {
        let budget = Budget::new(100 << 10);
        let mut response = hold(&budget, vec![1; 60 << 10]);
        assert_eq!(budget.used(), 60 << 10);
        assert!(try_hold(&budget, vec![1; 60 << 10]).is_err(), "there is no room for a frame");
        assert!(room(&budget, 60 << 10).is_err(), "nor for a read");
        drop(hold(&budget, vec![1; SMALL]));
        assert_eq!(budget.used(), 60 << 10, "small ones are not charged");
        let first = response.split_to(10);
        drop(response);
        assert_eq!(budget.used(), 60 << 10, "a part keeps the whole");
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
