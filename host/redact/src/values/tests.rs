//! Masking of bodies: complete, whatever the chunks, and with a cut that no value can be learned from.

use proptest::prelude::*;

use super::*;

fn values(values: &[&str]) -> Values {
    Values::new(values.iter().copied()).unwrap()
}

fn in_chunks<'p>(values: &Values, chunks: impl IntoIterator<Item = &'p [u8]>) -> Vec<u8> {
    let tail = values.0.as_ref().map_or(0, |search| search.tail);
    let mut body = MaskedBody::new(values.clone());
    let mut read = Vec::new();
    for chunk in chunks {
        read.extend(body.push(Bytes::copy_from_slice(chunk)));
        assert!(body.held.len() <= 2 * tail, "{} bytes held back", body.held.len());
    }
    read.extend(body.finish());
    read
}

#[test]
fn a_secret_is_masked_wherever_the_chunks_end() {
    let values = values(&["s3cr3t-value", "short", "s3cr3t-value-2"]);
    let body = b"a s3cr3t-value, s3cr3t-value-2, short, s3cr3t-valu czNjcjN0LXZhbHVl";
    let expected = b"a ************, **************, short, s3cr3t-valu ****************";
    for size in 1..=body.len() {
        let read = in_chunks(&values, body.chunks(size));
        assert_eq!(read, expected, "in chunks of {size}: {}", String::from_utf8_lossy(&read));
    }
}

#[test]
fn whole_lines_pass_at_once_and_uncopied() {
    let mut body = MaskedBody::new(values(&["s3cr3t-value"]));
    let data = Bytes::from("data: {}\n\n");
    let passed = body.push(data.clone());
    assert_eq!((passed.as_ptr(), passed.len()), (data.as_ptr(), data.len()));
    assert!(body.finish().is_empty());
}

/// The attack: write a guess, see where the read ends, and learn whether the guess begins a secret.
#[test]
fn where_a_chunk_ends_says_nothing_about_a_secret() {
    for secret in ["s3cr3t-value", "a secret line", "two\nlines of it"] {
        let values = values(&[secret]);
        let released = |guess: &str| {
            let text = format!("{} {guess}", "x".repeat(1_000));
            MaskedBody::new(values.clone()).push(Bytes::from(text)).len()
        };
        for length in 1..secret.len() {
            let guess = &secret[..length];
            let wrong = guess.replace(|char: char| char.is_ascii_graphic(), "q");
            assert_eq!(released(guess), released(&wrong), "{length} bytes of {secret:?} guessed");
        }
    }
}

#[test]
fn every_byte_of_secrets_that_overlap_is_masked() {
    let values = values(&["aaaabbbb", "aaaabbbbcccc", "bbbbccccdddd"]);
    let read = values.mask(Bytes::from_static(b"x aaaabbbbccccdddd aaaabbbbx"));
    assert_eq!(read, "x **************** ********x");
}

#[test]
fn each_line_of_a_key_is_a_value_and_streams_are_still_cut_at_words() {
    let line = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n");
    let values = values(&[&key]);
    assert_eq!(values.replace(&format!("a {line} b")), "a [REDACTED:secret] b");
    let mut body = MaskedBody::new(values);
    assert_eq!(body.push(Bytes::from_static(b"two words")), "two ");
}

proptest! {
    #[test]
    fn chunks_read_as_the_whole(
        secrets in prop::collection::vec("[ab \n\u{e9}]{8,12}", 1..3),
        body in "[abc \n\u{e9}]{0,80}",
        size in 1..20_usize,
    ) {
        let secrets = Values::new(secrets.iter().map(String::as_str)).unwrap();
        let whole = secrets.mask(Bytes::from(body.clone()));
        let read = in_chunks(&secrets, body.as_bytes().chunks(size));
        prop_assert_eq!(read, whole.to_vec());
    }
}
