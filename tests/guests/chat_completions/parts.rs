//! Images, files and data in messages and in answers.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Reply, Stream};
use talaria_rig::Ran;
use talaria_turns::{Content, FailureKind, Part, Turn};

use super::{polite, rig};

fn file(media_type: &str, bytes: &[u8]) -> Part {
    Part { media_type: Some(media_type.into()), ..Part::new(Content::Bytes(bytes.to_vec())) }
}

fn parts(ran: &Ran) -> &[Part] {
    &ran.result.as_ref().unwrap_or_else(|failure| panic!("the turn failed: {failure:?}")).parts
}

/// An answer with this message.
fn answers(message: &Value) -> Reply {
    Reply::json(&json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }))
}

#[tokio::test]
async fn images_are_sent_as_data_urls_after_the_text() {
    for streaming in [false, true] {
        let gateway = polite().await;
        let rig = rig(&gateway).await;
        let parts = vec![
            file("Image/PNG; a=b", b"\x89PNG"),
            Part::text("what is"),
            file("image/jpeg", &[0xff, 0xd8, 0xff]),
            Part::text("this?"),
        ];
        let ran = rig.execute(Turn { streaming, ..rig.turn_of(parts) }).await;
        assert_eq!(ran.text(), "hi");
        assert_eq!(
            gateway.request().json()["messages"],
            json!([{ "role": "user", "content": [
                { "type": "text", "text": "what is this?" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
                { "type": "image_url", "image_url": { "url": "data:image/jpeg;base64,/9j/" } },
            ] }])
        );
    }
}

#[tokio::test]
async fn an_image_alone_is_a_prompt() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    assert_eq!(rig.execute(rig.turn_of(vec![file("image/gif", b"GIF89a")])).await.text(), "hi");
    assert_eq!(
        gateway.request().json()["messages"][0]["content"],
        json!([{ "type": "image_url", "image_url": { "url": "data:image/gif;base64,R0lGODlh" } }])
    );
}

#[tokio::test]
async fn data_and_text_files_are_text() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let parts = vec![Part::new(Content::Data(json!({ "key": "value" }))), file("text/csv", b"a,b\n")];
    assert_eq!(rig.execute(rig.turn_of(parts)).await.text(), "hi");
    assert_eq!(
        gateway.request().json()["messages"][0]["content"],
        "data (application/json):\n{\"key\":\"value\"}\n\nfile (text/csv):\na,b"
    );
}

#[tokio::test]
async fn an_image_of_ten_megabytes_fits_into_a_turn() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let image = vec![0x5a_u8; 11 << 20];
    assert_eq!(rig.execute(rig.turn_of(vec![file("image/webp", &image)])).await.text(), "hi");
    let body = gateway.request().body;
    assert!(body.len() > image.len() / 3 * 4, "{} bytes", body.len());
}

#[tokio::test]
async fn other_files_are_rejected_before_any_call() {
    let gateway = polite().await;
    let rig = rig(&gateway).await;
    let ran = rig.execute(rig.turn_of(vec![Part::text("read"), file("application/pdf", b"%PDF")])).await;
    assert_eq!(ran.failure().kind, FailureKind::InvalidTurn);
    assert_eq!(gateway.connections(), 0);
}

#[tokio::test]
async fn the_parts_of_an_answer_beside_its_text_are_returned() {
    let message = json!({
        "content": [
            { "type": "text", "text": "Here " },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
            { "type": "output_text", "text": "you are." },
            { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg" } },
            { "type": "json", "json": { "total": 3 } },
        ],
        "images": [
            // Sent twice, as routers do.
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } },
            { "type": "image_url", "image_url": { "url": "https://images.example/a.webp" } },
        ],
    });
    let expected = [
        Part::text("Here you are."),
        file("image/png", b"\x89PNG"),
        Part { filename: Some("a.pdf".into()), ..file("application/pdf", b"%PDF") },
        Part {
            media_type: Some("application/json".into()),
            ..Part::new(Content::Data(json!({ "total": 3 })))
        },
        Part::new(Content::Uri("https://images.example/a.webp".into())),
    ];
    let gateway = FakeGateway::always(answers(&message)).await;
    let rig = rig(&gateway).await;
    for streaming in [false, true] {
        let ran = rig.execute(Turn { streaming, ..rig.turn("hello") }).await;
        assert_eq!(parts(&ran), expected, "streaming {streaming}");
    }
}

#[tokio::test]
async fn images_of_a_stream_are_returned_at_its_end() {
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } });
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "", "images": [image] } }] });
    let stream = Stream::new().delta("Here.").bytes(format!("data: {chunk}\n\n")).finish("stop");
    let gateway = FakeGateway::always(stream).await;
    let ran = rig(&gateway).await.stream("draw").await;
    assert_eq!(ran.deltas(), ["Here."]);
    assert_eq!(parts(&ran), [Part::text("Here."), file("image/png", b"\x89PNG")]);
}

#[tokio::test]
async fn an_image_without_text_is_an_answer() {
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw==" } });
    for content in [json!(null), json!(""), json!([image])] {
        let gateway = FakeGateway::always(answers(&json!({ "content": content, "images": [image] }))).await;
        let ran = rig(&gateway).await.run("draw").await;
        assert_eq!(parts(&ran), [file("image/png", b"\x89PNG")], "{content}");
    }
}

#[tokio::test]
async fn malformed_parts_are_left_out_of_the_answer() {
    let nine = format!("data:image/png;base64,{}", "AAAA".repeat((9 << 20) / 3));
    for bad in [
        json!({ "type": "image_url" }),
        json!({ "type": "image_url", "image_url": { "url": 3 } }),
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,!!!" } }),
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64," } }),
        json!({ "type": "image_url", "image_url": { "url": "data:;base64,iVBORw==" } }),
        json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }),
        json!({ "type": "file", "file": null }),
        json!({ "type": "json" }),
        json!({ "type": "hologram" }),
        json!({ "type": "reasoning", "text": "a thought" }),
        json!(null),
        json!(3),
    ] {
        let message = json!({ "content": [{ "type": "text", "text": "fine" }, bad], "images": [bad] });
        let gateway = FakeGateway::always(answers(&message)).await;
        assert_eq!(rig(&gateway).await.run("hello").await.text(), "fine");
    }
    let deep = (0..110).fold(json!(1), |inner, _| json!([inner]));
    let message =
        json!({ "content": [{ "type": "text", "text": "fine" }, { "type": "json", "json": deep }] });
    let gateway = FakeGateway::always(answers(&message)).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "fine", "no host takes data as deep as this");
    let nine = json!([{ "type": "image_url", "image_url": { "url": nine } }]);
    let gateway = FakeGateway::always(answers(&json!({ "content": "fine", "images": nine }))).await;
    assert_eq!(rig(&gateway).await.run("hello").await.text(), "fine", "nine megabytes are too many");
    // An endless list of images.
    let images: Vec<_> = (0..100)
        .map(
            |n| json!({ "type": "image_url", "image_url": { "url": format!("https://images.example/{n}") } }),
        )
        .collect();
    let gateway = FakeGateway::always(answers(&json!({ "content": "fine", "images": images }))).await;
    assert_eq!(parts(&rig(&gateway).await.run("hello").await).len(), 17, "the text and sixteen of them");
}

#[tokio::test]
async fn an_answer_that_is_json_is_data_too_if_the_caller_accepts_it() {
    let gateway = FakeGateway::always(Reply::completion(r#"{"total": 3}"#)).await;
    let rig = rig(&gateway).await;
    assert_eq!(rig.run("hello").await.text(), r#"{"total": 3}"#);
    let metadata = json!({ "talaria/output-modes": ["application/json"] }).as_object().cloned().map(Arc::new);
    let ran = rig.execute(Turn { metadata, ..rig.turn("hello") }).await;
    let [text, data] = parts(&ran) else { panic!("{ran:?}") };
    assert_eq!(*text, Part::text(r#"{"total": 3}"#));
    assert_eq!(data.content, Content::Data(json!({ "total": 3 })));
}
