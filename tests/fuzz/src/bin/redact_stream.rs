//! Redaction of pieces equals redaction of the whole. The first line says where the rest is cut.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use talaria_fuzz::pieces;
use talaria_redact::{Redactor, Replies, ReplyRedactor};

const KNOWN: [&str; 4] = ["correct horse battery", "battery staple x", "hunter2hunter2", "日本 の 秘密 です"];

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| Redactor::new(KNOWN));

fuzz_target!(|data: &str| {
    let (sizes, text) = data.split_once('\n').unwrap_or((data, ""));
    for (replies, whole) in [(Replies::Values, REDACTOR.values(text)), (Replies::Shapes, REDACTOR.all(text))]
    {
        let replies = ReplyRedactor::new(REDACTOR.clone(), replies);
        for sizes in [sizes.as_bytes(), b"A"] {
            let mut stream = replies.stream();
            let mut out = String::new();
            for piece in pieces(sizes, text) {
                out.push_str(&stream.push(piece));
                let (held, most) = stream.held();
                assert!(held <= most, "{held} bytes are held");
                // A longer stretch is released unmasked, which is another promise.
                assert!(text.len() < most, "an input of this target is shorter than what is held");
            }
            out.push_str(&stream.finish());
            assert_eq!(out, whole, "the pieces give what the whole gives");
            assert_eq!(stream.finish(), "", "the stream is as new");
        }
    }
});
