//! A message that is admitted fits into the memory of its executor.

use serde_json::json;
use talaria_fakes::guest;
use talaria_rig::Rig;
use talaria_turns::{Content, Executor as _, Part};

const MIB: usize = 1 << 20;
const BUILT_IN: [&str; 5] = ["chat-completions", "hermes", "hermes-runs", "plugin-callback", "conformance"];

/// Parts whose sizes are near `bytes`: text that needs no escapes, some, and many; bytes; data.
fn contents(bytes: usize) -> Vec<(&'static str, Part)> {
    let text = |text: &str, size: usize| Part::text(text.repeat(bytes / size));
    let image = Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(vec![7; bytes])) };
    let list: Vec<_> = (0..bytes / 128).collect();
    vec![
        ("plain text", text("words and words ", 16)),
        ("lines of code", text("if \"a\" {\n\tb \\\n", 20)),
        ("control characters", text("\u{1}", 6)),
        ("one long string", Part::new(Content::Data(json!({ "text": "x".repeat(bytes) })))),
        ("an image", image),
        ("many numbers", Part::new(Content::Data(json!(list)))),
    ]
}

/// The largest size that is admitted.
fn largest(rig: &Rig) -> usize {
    let executor = rig.executor();
    let (mut fits, mut too_large) = (0, 64 * MIB);
    while too_large - fits > 1024 {
        let half = fits + (too_large - fits) / 2;
        match executor.memory(half) {
            Ok(_) => fits = half,
            Err(_) => too_large = half,
        }
    }
    fits
}

/// Runs a turn, which reaches no upstream. Returns whether the memory was enough.
async fn fits(rig: &Rig, part: Part) -> bool {
    match rig.execute(rig.turn_of(vec![part])).await.result {
        Ok(_) => true,
        Err(failure) => {
            assert!(!failure.message.contains("crashed"), "{failure:?}");
            !failure.message.contains("ran out of its")
        }
    }
}

#[tokio::test]
async fn the_largest_message_that_is_admitted_fits_into_every_built_in_executor() {
    for name in BUILT_IN {
        let rig = Rig::of(guest(name)).await;
        let bytes = largest(&rig);
        assert!(bytes > 2 * MIB, "{name} takes at most {bytes} bytes");
        for (kind, part) in contents(bytes - 4096) {
            assert!(fits(&rig, part).await, "{name}: {bytes} bytes of {kind}");
        }
    }
}
