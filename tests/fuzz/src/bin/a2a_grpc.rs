//! A call of gRPC: the path, headers, an empty line, the message. The frame around the message is added here, so that the
//! decoder behind it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use talaria_a2a::fuzz::{self, Operation, Version};
use talaria_fuzz::{first_line, head_and_body, headers};

const INVALID_ARGUMENT: i32 = 3;
const FAILED_PRECONDITION: i32 = 9;
const UNIMPLEMENTED: i32 = 12;

fuzz_target!(|data: &[u8]| {
    let (head, message) = head_and_body(data);
    let (line, lines) = first_line(head);
    let Ok(path) = std::str::from_utf8(line) else { return };
    let Some((version, operation)) = fuzz::grpc(path, &headers(lines), &framed(message)) else { return };
    match operation {
        Err((code, text)) => {
            let known = [INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED];
            assert!(known.contains(&code), "bad input is not our fault: {code} {text}");
            assert!(!text.is_empty());
        }
        Ok(Operation::Send(send) | Operation::Stream(send, _)) => {
            assert!(!send.addressed.message.parts.is_empty());
            // What was read can be written, unless it is too deep, and is framed.
            if let Some(frame) = fuzz::write_grpc(version, &send.addressed) {
                let (prefix, body) = frame.split_first_chunk::<5>().expect("a prefix");
                assert_eq!(prefix[0], 0);
                assert_eq!(prefix[1..], (body.len() as u32).to_be_bytes());
            }
        }
        Ok(Operation::List(_)) => assert_eq!(version, Version::V1, "0.3 has no list"),
        Ok(_) => {}
    }
});

fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}
