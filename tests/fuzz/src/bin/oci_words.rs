//! What registries send and operators write. The first line names the kind (`reference`, `challenge`, `manifest` or
//! `layer`); the rest is the input.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use talaria_oci::Reference;
use talaria_oci::fuzz::{component, manifest, realm};

/// Small enough for an input to exceed.
const MOST: u64 = 1024;

fuzz_target!(|data: &[u8]| {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (kind, rest) = (&data[..end], &data[end + 1..]);
    match kind {
        b"reference" => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            let Ok(read) = text.parse::<Reference>() else { return };
            assert_eq!(
                read.to_string().parse::<Reference>().as_ref(),
                Ok(&read),
                "what is shown is what is read"
            );
            assert!(!read.registry().contains(['/', '@', '?', '#', '%', ' ']), "{read}");
            assert!(!read.to_string().contains("/../"), "{read}");
        }
        b"challenge" => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            assert!(realm(text).is_none_or(|realm| realm.len() <= text.len()));
        }
        b"manifest" => {
            let Ok(found) = manifest(rest) else { return };
            assert!((1..=64).contains(&found.len()));
            for (digest, _) in found {
                assert_eq!(digest.to_string().len(), "sha256:".len() + 64);
            }
        }
        b"layer" => {
            let layer = Bytes::copy_from_slice(rest);
            if let Some(found) = component(layer.clone(), MOST) {
                // A layer that is itself the component was checked against the bound before.
                assert!(found == layer || found.len() as u64 <= MOST);
            }
        }
        _ => {}
    }
});
