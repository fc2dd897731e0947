//! The bound in front of the parser, wherever the chunks end.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use proptest::prelude::*;
use sse_stream::SseByteStream;

use super::{Bounded, Measure, from_parser};
use crate::error::{Error, ErrorKind};

/// The data of all events, and the error that ended them, if one did.
fn parse(chunks: Vec<Bytes>, most: usize) -> (Vec<String>, Option<ErrorKind>) {
    let chunks = stream::iter(chunks.into_iter().map(Ok::<_, Error>));
    let mut parser = SseByteStream::new(Bounded { chunks, most, measure: Measure::default(), failed: false });
    let mut data = Vec::new();
    futures_util::FutureExt::now_or_never(async move {
        while let Some(block) = parser.next().await {
            match block {
                Ok(block) => data.extend(block.data),
                Err(error) => return (data, Some(from_parser(error).kind())),
            }
        }
        (data, None)
    })
    .expect("the chunks are all there")
}

fn split(text: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&text[pair[0]..pair[1]])).collect()
}

#[test]
fn an_endless_line_is_stopped_at_the_bound() {
    let chunks = std::iter::repeat_n(Bytes::from_static(b"xxxxxxxx"), 1000).collect();
    assert_eq!(parse(chunks, 100), (vec![], Some(ErrorKind::TooLarge)));
}

#[test]
fn an_endless_event_of_short_lines_is_stopped_at_the_bound() {
    let chunks = std::iter::repeat_n(Bytes::from_static(b"data: x\n"), 1000).collect();
    assert_eq!(parse(chunks, 100), (vec![], Some(ErrorKind::TooLarge)));
}

#[test]
fn complete_events_before_a_long_one_arrive() {
    let chunk = Bytes::from(format!("data: 1\n\ndata: 2\n\ndata: {}\n\n", "x".repeat(100)));
    assert_eq!(parse(vec![chunk], 50), (vec!["1".into(), "2".into()], Some(ErrorKind::TooLarge)));
}

#[test]
fn keep_alives_do_not_count() {
    let chunks = std::iter::repeat_n(Bytes::from_static(b": keep-alive\n"), 1000);
    let chunks = chunks.chain([Bytes::from_static(b"data: 1\r\n\r\n")]).collect();
    assert_eq!(parse(chunks, 50), (vec!["1".into()], None));
}

proptest! {
    #[test]
    fn short_events_pass_wherever_the_chunks_end(
        events in prop::collection::vec("[a-z :]{0,20}", 0..8),
        ending in prop_oneof![Just("\n"), Just("\r"), Just("\r\n")],
        cuts in prop::collection::vec(any::<usize>(), 0..12)
    ) {
        let text: String = events.iter().map(|data| format!("data: {data}{ending}{ending}")).collect();
        prop_assert_eq!(parse(split(text.as_bytes(), &cuts), 32), (events, None));
    }

    #[test]
    fn a_long_event_fails_wherever_the_chunks_end(
        lines in prop::collection::vec("[a-z]{1,20}", 5..10),
        ending in prop_oneof![Just("\n"), Just("\r"), Just("\r\n")],
        cuts in prop::collection::vec(any::<usize>(), 0..12)
    ) {
        let text: String = lines.iter().map(|data| format!("data: {data}{ending}")).collect();
        prop_assert_eq!(parse(split(text.as_bytes(), &cuts), 30), (vec![], Some(ErrorKind::TooLarge)));
    }
}
