//! The guest gets the whole turn, and the host gets everything that the guest emits and returns.

use std::sync::Arc;

use serde_json::{Value, json};
use talaria_fakes::{FakeGateway, Stream, soon};
use talaria_rig::Rig;
use talaria_turns::{
    Content, Emitted, FailureKind, FinalState, Message, Metadata, Part, Principal, Turn, TurnSignal,
};
use tokio::sync::Notify;

#[tokio::test]
async fn a_guest_can_read_the_earlier_messages_of_its_context() {
    let rig = Rig::new("probe").await;
    for number in 1..=3 {
        rig.said(&format!("question {number}"), &format!("answer {number}")).await;
    }
    let ask = async |max: &str| {
        let turn = rig.turn_of_record(&format!("history {max}")).await;
        serde_json::from_str::<Value>(rig.execute(turn).await.text()).unwrap()
    };
    assert_eq!(ask("2").await, json!([[true, "question 3"], [false, "answer 3"]]));
    assert_eq!(ask("0").await, json!([]));
    assert_eq!(ask("4294967295").await.as_array().unwrap().len(), 6);
    let stranger = Turn { principal: Principal::named("bob"), ..rig.turn_of_record("history 9").await };
    assert_eq!(rig.execute(stranger).await.text(), "[]");
}

#[tokio::test]
async fn the_guest_gets_every_field_of_the_turn() {
    let rig = Rig::new("probe").await.setting("base_url", "http://127.0.0.1:1");
    let turn = rig.turn("turn");
    let metadata: Metadata = json!({ "a": 1 }).as_object().cloned().unwrap();
    let turn = Turn {
        history: [Arc::new(Message::agent(vec![Part::text("before")]))].into(),
        principal: Principal::named("alice"),
        metadata: Some(Arc::new(metadata)),
        ..turn
    };
    let (task, context, message) =
        (turn.task.to_string(), turn.context.to_string(), turn.message.id.to_string());
    let ran = rig.execute(turn).await;
    let told: Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!(told["task"], task);
    assert_eq!(told["context"], context);
    assert_eq!((&told["message"], &told["session_message"]), (&message.clone().into(), &message.into()));
    assert_eq!(told["text"], "turn");
    assert_eq!(told["history"], 1);
    assert_eq!(told["principal"], "alice");
    assert_eq!(told["streaming"], false);
    assert_eq!(told["async_delivery"], false);
    assert_eq!(told["metadata"], r#"{"a":1}"#);
    assert_eq!(told["settings"], r#"{"base_url":"http://127.0.0.1:1"}"#);
    assert_eq!(told["base_url"], r#""http://127.0.0.1:1""#);
    let budget = told["budget_ms"].as_u64().unwrap();
    assert!((500_000..=600_000).contains(&budget), "{budget}");
}

#[tokio::test]
async fn parts_of_every_kind_pass_through_unchanged() {
    let rig = Rig::new("probe").await;
    let parts = vec![
        Part::text("parts"),
        Part::new(Content::Data(json!({ "deep": [1, null, { "x": "ü" }] }))),
        Part { media_type: Some("image/png".into()), ..Part::new(Content::Bytes(vec![0, 159, 255])) },
        Part {
            filename: Some("a.txt".into()),
            ..Part::new(Content::Uri("https://example.com/a.txt".into()))
        },
        Part { metadata: json!({ "k": "v" }).as_object().cloned(), ..Part::text("last") },
    ];
    assert_eq!(rig.execute(rig.turn_of(parts.clone())).await.result.unwrap().parts, parts);
}

#[tokio::test]
async fn every_outcome_of_a_turn_is_returned() {
    let rig = Rig::new("probe").await;
    let asked = rig.run("ask-back which one?").await.result.unwrap();
    assert_eq!((asked.state, asked.parts), (FinalState::InputRequired, vec![Part::text("which one?")]));
    assert_eq!(rig.run("reject no").await.result.unwrap().state, FinalState::Rejected);
    let failed = rig.run("fail [upstream] 500").await;
    assert_eq!(failed.failure().kind, FailureKind::Upstream);
    assert_eq!(failed.failure().message, "[upstream] 500");
}

#[tokio::test]
async fn events_keep_their_order() {
    let rig = Rig::new("probe").await;
    let words: Vec<String> = (0..100).map(|n| format!("w{n} ")).collect();
    let ran = rig.stream(&format!("emit {}end", words.concat())).await;
    assert_eq!(ran.deltas().concat(), format!("{}end", words.concat()));

    let ran = rig.run("emit-artifact").await;
    assert!(matches!(
        ran.events.as_slice(),
        [
            Emitted::Artifact { append: false, last: false, .. },
            Emitted::Artifact { append: true, last: true, .. }
        ]
    ));
    assert_eq!(rig.run("emit-status working").await.events, [Emitted::Status("working".into())]);
}

#[tokio::test]
async fn secrets_in_a_guests_output_are_redacted() {
    let rig = Rig::new("probe").await.secret("PROBE_KEY", "correct-horse-battery");
    let code = "api_key = os.environ[\"X\"] # sk-abcdefghijklmnopqrstuvwx";
    assert_eq!(rig.run(&format!("echo {code}")).await.text(), code, "only values of secrets are replaced");
    let said = rig.run("echo it is correct-horse-battery ok").await;
    assert!(!said.text().contains("correct-horse"), "{}", said.text());
    let failed = rig.run("fail HTTP 401 sk-abcdefghijklmnopqrstuvwx").await;
    assert!(!failed.failure().message.contains("sk-abc"), "{}", failed.failure().message);
    let streamed =
        rig.stream("emit the key is correct-horse-battery or sk-abcdefghijklmnopqrstuvwx ok").await;
    let said = streamed.deltas().concat();
    assert_eq!(said, "the key is [REDACTED:secret] or sk-abcdefghijklmnopqrstuvwx ok");
}

#[tokio::test]
async fn a_malformed_outcome_fails_the_turn_and_names_the_field() {
    let failed = Rig::new("probe").await.run("bad-metadata").await;
    assert_eq!(failed.failure().kind, FailureKind::Internal);
    assert!(failed.failure().message.contains("outcome.metadata"), "{}", failed.failure().message);
}

#[tokio::test]
async fn callbacks_that_are_not_granted_are_denied() {
    assert_eq!(Rig::new("probe").await.run("expect m1").await.text(), "ErrorKind::Denied");
}

#[tokio::test]
async fn the_probe_distinguishes_an_unreachable_upstream_from_invalid_settings() {
    let rig = Rig::new("probe").await;
    assert_eq!(rig.executor().setup().await, Ok(()));
    assert_eq!(rig.executor().recheck().await, Ok(()));
    let down = Rig::new("probe").await.setting("setup", "down").executor().setup().await.unwrap_err();
    assert_eq!(down.kind, FailureKind::Upstream);
    let invalid = Rig::new("probe").await.setting("setup", "invalid").executor().setup().await.unwrap_err();
    assert_eq!(invalid.kind, FailureKind::InvalidSettings);
}

#[tokio::test]
async fn an_instance_is_never_used_twice() {
    // The guest would increment a static; an instance for each turn always starts at zero.
    let rig = Rig::new("probe").await;
    assert_eq!(rig.run("set key value").await.text(), "set");
    assert_eq!(rig.run("get key").await.text(), "value", "state is the only memory");
    assert_eq!(rig.run("span").await.text(), "spanned");
}

#[tokio::test]
async fn a_guest_asks_and_goes_on_with_the_answer() {
    let ran = Rig::new("probe").await.run("ask which?,and then?").await;
    assert_eq!(ran.questions, ["which?", "and then?"]);
    assert_eq!(ran.text(), "answer 1+answer 2");
}

#[tokio::test]
async fn a_question_that_is_posed_is_answered_or_withdrawn() {
    let rig = Rig::new("probe").await;
    let ran = rig.run("pose 30000 which?,and then?").await;
    assert_eq!(
        (ran.text(), ran.questions.as_slice()),
        ("answer 1+answer 2", ["which?", "and then?"].map(String::from).as_slice())
    );

    let (running, mut said) = rig.begin(rig.turn("pose 1 which?"));
    let (result, ()) = tokio::join!(running, async {
        let Some(TurnSignal::Ask { mut answer, .. }) = said.recv().await else { panic!("a question") };
        answer.closed().await;
        assert!(said.recv().await.is_none());
    });
    assert_eq!(result.unwrap().parts, [Part::text("withdrawn")]);
}

#[tokio::test]
async fn a_guest_can_work_while_no_event_arrives() {
    let released = Arc::new(Notify::new());
    let stream = Stream::default().bytes("data: one\n\n").wait(&released).bytes("data: two\n\n");
    let gateway = FakeGateway::always(stream).await;
    let rig = Rig::new("probe").await.setting("base_url", gateway.base_url());
    let (running, mut said) = rig.begin(rig.turn(&format!("sse-await {}/events", gateway.base_url())));
    let (result, ()) = tokio::join!(running, async {
        let idle = soon("the guest is idle", said.recv()).await;
        assert!(
            matches!(&idle, Some(TurnSignal::Emitted(said)) if matches!(**said, Emitted::Status(_))),
            "{idle:?}"
        );
        released.notify_one();
    });
    assert_eq!(result.unwrap().parts, [Part::text("one+two")]);
}

#[tokio::test]
async fn a_checkpoint_is_stored_and_returned() {
    let rig = Rig::new("probe").await;
    let ran = rig.run("checkpoint echo done").await;
    assert_eq!((ran.text(), ran.checkpoints.as_slice()), ("done", [b"one".to_vec()].as_slice()));
    let turn = Turn { checkpoint: Some(b"two".to_vec()), ..rig.turn("checkpoint echo done") };
    assert_eq!(rig.execute(turn).await.text(), "resumed at two");
}
