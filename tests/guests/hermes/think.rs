//! Thoughts inside the content are removed, wherever the pieces are torn.

use serde_json::json;
use talaria_fakes::{FakeGateway, Reply};

use super::{message, rig, run_against, stream_against};

/// Content, and the answer in it.
const CASES: [(&str, &str); 13] = [
    ("<think>a</think>b", "b"),
    ("a<think>b</think>c", "ac"),
    ("<think>a</think>b<think>c</think>d", "bd"),
    ("<think>a<think>b</think>c</think>d", "d"),
    ("<THINK>a</Think>b", "b"),
    ("<think></think>b", "b"),
    ("b<think>never closed", "b"),
    ("<think>a</think>b</thin", "b</thin"),
    ("a < b, <thinker> and <b>bold</b> </", "a < b, <thinker> and <b>bold</b> </"),
    ("<<think>a</think>b", "<b"),
    ("ä<think>ö</think>ü🦀", "äü🦀"),
    ("a thought</think>b", "b"),
    ("<think>a</think>b</think>c", "c"),
];

#[tokio::test]
async fn thoughts_are_removed_from_a_whole_answer() {
    for (content, answer) in CASES {
        assert_eq!(run_against(message(json!({ "content": content }))).await.text(), answer, "{content}");
    }
    for nothing in ["<think>a</think>", "<think>never closed", "a</think> "] {
        let ran = run_against(message(json!({ "content": nothing }))).await;
        assert_eq!(ran.text(), "(no response generated)", "{nothing}");
    }
}

#[tokio::test]
async fn thoughts_are_removed_from_a_stream_wherever_it_is_torn() {
    for (content, answer) in CASES {
        let boundaries = || content.char_indices().map(|(at, _)| at).chain([content.len()]);
        let mut pieces: Vec<Vec<&str>> =
            boundaries().map(|at| vec![&content[..at], &content[at..]]).collect();
        pieces.push(boundaries().zip(boundaries().skip(1)).map(|(from, to)| &content[from..to]).collect());
        // One endpoint for each case, whose script is the list of pieces.
        let endpoint =
            FakeGateway::script(pieces.iter().map(|pieces| Reply::stream(pieces.iter().copied()))).await;
        let rig = rig(&endpoint).await;
        for pieces in &pieces {
            let ran = rig.stream("hello").await;
            assert_eq!(ran.text(), answer, "{pieces:?}");
            // An unopened closing tag comes too late for the text that was emitted before it.
            if !["a thought</think>b", "<think>a</think>b</think>c"].contains(&content) {
                assert_eq!(ran.deltas().concat(), answer, "{pieces:?}");
            }
        }
    }
}

#[tokio::test]
async fn text_before_an_unopened_closing_tag_is_not_in_the_reply() {
    let ran = stream_against(Reply::stream(["a thought</th", "ink>the answer"])).await;
    assert_eq!(ran.text(), "the answer");
}

#[tokio::test]
async fn a_thousand_nested_blocks_are_one_thought() {
    let content = format!("{}x{}answer", "<think>".repeat(1_000), "</think>".repeat(1_000));
    assert_eq!(run_against(message(json!({ "content": content }))).await.text(), "answer");
}
