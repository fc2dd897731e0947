//! Frames and messages: from the bytes of a body to a message of protobuf, and back.
//!
//! A frame is a flag for compression, a length of four bytes, and the message. Compression is not offered, so one bound on
//! the body is the bound on the message.
//!
//! prost bounds the depth of a message, at 100 levels as protobuf's own libraries do, but not what it becomes in memory: two
//! bytes of an empty part become two hundred. So [`message`] reads through [`Counted`], which counts the reads, charges each
//! to the request and stops at [`MAX_READS`]. A decoder of our own would have to know every type to do the same.

use bytes::Buf;
use prost::Message;
use talaria_budget::{Charge, Full};

use crate::rejection::{ErrorKind, Rejection};

/// The bytes before a message.
const PREFIX: usize = 5;
/// Reads from one message. Each field costs two at least, each number in a list four.
const MAX_READS: usize = 2_000_000;
/// The bytes that a read is charged: half of the largest type that two reads create.
const READ: usize = 100;
/// The reads that are charged at once.
const CHARGED: usize = 256;
/// What a decoder is given once reading has been stopped; no varint begins like this.
const STOP: &[u8] = &[0xff; 16];

/// The rest of a message, whose reads are counted.
struct Counted<'m, 'c> {
    rest: &'m [u8],
    reads: usize,
    /// Whether the host has no memory for more.
    full: Option<Full>,
    charge: &'c mut Charge,
}

// === impl Counted ===

impl Counted<'_, '_> {
    fn is_stopped(&self) -> bool {
        self.full.is_some() || self.reads > MAX_READS
    }
}

impl Buf for Counted<'_, '_> {
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn chunk(&self) -> &[u8] {
        match self.rest {
            // A decoder that copies must not run beyond the end, and one that reads fails.
            rest if self.is_stopped() => STOP.get(..rest.len().min(STOP.len())).unwrap_or_default(),
            rest => rest,
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.reads += 1;
        if self.reads.is_multiple_of(CHARGED) && self.full.is_none() {
            self.full = self.charge.grow(CHARGED * READ).err();
        }
    }
}

/// Returns the only message in a body.
pub(super) fn unframe(body: &[u8]) -> Result<&[u8], Rejection> {
    let invalid = |what: &str| Err(Rejection::new(ErrorKind::InvalidRequest, what));
    let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() else {
        return invalid("the request has no message");
    };
    let [flag, length @ ..] = *prefix;
    if flag != 0 {
        return invalid("the message is compressed, which this server does not offer");
    }
    match usize::try_from(u32::from_be_bytes(length)) {
        Ok(length) if length == rest.len() => Ok(rest),
        Ok(length) if length < rest.len() => invalid("the request has more than one message"),
        _ => invalid("the message ended early"),
    }
}

/// Decodes a message. What it takes is added to `charge`. The error names the field.
pub(super) fn message<M: Message + Default>(bytes: &[u8], charge: &mut Charge) -> Result<M, Rejection> {
    // Its texts are no longer than the message.
    charge.grow(bytes.len())?;
    let mut counted = Counted { rest: bytes, reads: 0, full: None, charge };
    let decoded = M::decode(&mut counted);
    let is_stopped = counted.is_stopped();
    if let Some(full) = counted.full {
        return Err(full.into());
    }
    if is_stopped {
        let message = format!("the message has more than {MAX_READS} fields and lengths");
        return Err(Rejection::new(ErrorKind::InvalidRequest, message));
    }
    decoded.map_err(|error| {
        let error = error.to_string();
        let error = error.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&error);
        Rejection::new(ErrorKind::Malformed, format!("the message cannot be decoded: {error}"))
    })
}

/// Encodes a message as a frame.
pub(super) fn frame(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.push(0);
    // No task is as large as 4 GiB.
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut frame);
    frame
}

#[cfg(test)]
mod tests {
    use talaria_budget::Budget;

    use super::*;
    use crate::grpc::v1::pb;

    fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, Rejection> {
        message(bytes, &mut Budget::unlimited().nothing())
    }

    #[test]
    fn a_body_is_one_frame() {
        let task = pb::GetTaskRequest { id: "t".into(), ..Default::default() };
        let whole = frame(&task);
        assert_eq!(whole, b"\0\0\0\0\x03\x12\x01t");
        assert_eq!(read::<pb::GetTaskRequest>(unframe(&whole).unwrap()), Ok(task));
        let refused = |body: &[u8]| unframe(body).unwrap_err().message;
        assert_eq!(refused(b""), "the request has no message");
        assert_eq!(refused(b"\0\0\0\0"), "the request has no message");
        assert_eq!(refused(b"\0\0\0\0\x04abc"), "the message ended early");
        assert_eq!(refused(b"\0\xff\xff\xff\xffabc"), "the message ended early");
        assert_eq!(refused(b"\0\0\0\0\0\0\0\0\0\0"), "the request has more than one message");
        assert_eq!(
            refused(b"\x01\0\0\0\x03abc"),
            "the message is compressed, which this server does not offer"
        );
    }

    #[test]
    fn a_broken_message_is_rejected_with_its_field() {
        let broken = |bytes: &[u8]| {
            let rejection = read::<pb::SendMessageRequest>(bytes).unwrap_err();
            assert_eq!(rejection.kind, ErrorKind::Malformed);
            rejection.message
        };
        let message = broken(b"\x12\x05\x0a\x01\xff");
        assert!(
            message.starts_with("the message cannot be decoded: SendMessageRequest.message: "),
            "{message}"
        );
        let message = broken(b"\x12\x03\x0a\x01\xff");
        assert!(message.contains("Message.message_id: ") && message.contains("UTF-8"), "{message}");
        for bytes in [b"\xff".as_slice(), b"\x0f", b"\x00", b"\x12\xff\xff\xff\xff\x0f"] {
            broken(bytes);
        }
    }

    #[test]
    fn a_message_nested_too_deep_is_rejected() {
        let mut deep = prost_types::Value::default();
        for _ in 0..120 {
            let list = prost_types::ListValue { values: vec![deep] };
            deep = prost_types::Value { kind: Some(prost_types::value::Kind::ListValue(list)) };
        }
        let message = read::<prost_types::Value>(&deep.encode_to_vec()).unwrap_err().message;
        assert!(message.contains("recursion limit"), "{message}");
    }

    #[test]
    fn many_small_fields_are_charged_and_then_rejected() {
        // Empty parts, of two bytes each.
        let parts = |count: usize| b"\x2a\x00".repeat(count);
        let budget = Budget::new(1 << 20);
        let mut charge = budget.nothing();
        message::<pb::Message>(&parts(4_000), &mut charge).unwrap();
        assert!(charge.bytes() > 4_000 * size_of::<pb::Part>(), "{}", charge.bytes());
        charge.shrink_to(0);
        let rejection = message::<pb::Message>(&parts(40_000), &mut charge).unwrap_err();
        assert_eq!(rejection.kind, ErrorKind::Busy, "80 KB become 8 MB");
        assert!(budget.used() <= budget.limit());
        let rejection = read::<pb::Message>(&parts(MAX_READS / 2 + 1)).unwrap_err();
        assert_eq!(rejection.kind, ErrorKind::InvalidRequest);
        // A text whose length is the last that is read, and which is copied then.
        let mut long = parts(MAX_READS / 2 - 2);
        long.extend(b"\x12\x01c\x0a\x80\x08");
        long.extend([b'x'; 1024]);
        assert_eq!(read::<pb::Message>(&long).unwrap_err().kind, ErrorKind::InvalidRequest);
    }
}
