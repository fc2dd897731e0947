use super::*;
use crate::model::{Metadata, Role, Timestamp};
use crate::task::Status;

fn recall(messages: usize, bytes: usize) -> Recall {
    Recall {
        owner: Principal::anyone(),
        context: ContextId::fresh(),
        present: TaskId::fresh(),
        host_made_only: false,
        messages,
        bytes,
    }
}

fn user(parts: Vec<Part>) -> Arc<Message> {
    Arc::new(Message { role: Role::User, ..Message::agent(parts) })
}

fn accepted(text: &str) -> Event {
    Event::Accepted {
        message: user(vec![Part::text(text)]),
        executor: "it".into(),
        metadata: None,
        trace: None,
    }
}

fn reply(text: &str, append: bool) -> Event {
    let mut part = Part::text(text);
    part.metadata = Some(Metadata::from_iter([("mark".to_owned(), true.into())]));
    Event::Artifact { artifact: Artifact::new(REPLY, vec![part]).into(), append, last: false }
}

fn asks(text: &str) -> Event {
    let message = Some(Arc::new(Message::agent(vec![Part::text(text)])));
    let status = Status { state: State::InputRequired, message, at: Timestamp::now() };
    Event::Status { status, metadata: None, ends_turn: false }
}

fn lines(recollection: Recollection) -> Vec<String> {
    let line = |message: Arc<Message>| {
        let role = if message.role == Role::User { ">" } else { "<" };
        format!("{role} {}", crate::message_text(&message.parts))
    };
    recollection.messages().into_iter().map(line).collect()
}

/// The messages of one task.
fn of(events: &[Event]) -> Vec<String> {
    let mut recollection = Recollection::new(&recall(100, 10_000));
    recollection.add(&TaskId::fresh(), events, Extent::Whole);
    lines(recollection)
}

fn ended(state: State, text: &str) -> Event {
    Event::ended(state, if text.is_empty() { vec![] } else { vec![Part::text(text)] }, None)
}

#[test]
fn a_streamed_answer_is_one_message_and_progress_is_left_out() {
    let events = [
        accepted("my name is Ada"),
        Event::said(State::Working, vec![Part::text("thinking about names")]),
        reply("Hello ", false),
        Event::Note { name: "tool-progress".into(), value: "ls".into() },
        reply("Ada", true),
        Event::Whole(Artifact::new(REPLY, vec![Part::text("Hello Ada")]).into()),
        ended(State::Completed, "done in 3 s"),
    ];
    assert_eq!(of(&events), ["> my name is Ada", "< Hello Ada"]);
}

#[test]
fn each_turn_of_a_task_has_its_own_answer() {
    let events = [
        accepted("one"),
        reply("first", false),
        ended(State::InputRequired, "and then?"),
        Event::moved(State::Working),
        accepted("two"),
        accepted("three"),
        reply("second", false),
        ended(State::Working, ""),
        reply("third", false),
        ended(State::Completed, ""),
    ];
    assert_eq!(of(&events), ["> one", "< first and then?", "> two", "< second", "> three", "< third"]);
}

#[test]
fn a_question_is_included_if_it_was_answered() {
    let answered = Event::Answered(user(vec![Part::text("the red one")]));
    let events = [
        accepted("paint it"),
        asks("red or blue?"),
        Event::moved(State::Working),
        asks("red or green?"),
        Event::moved(State::Working),
        answered,
        reply("done", false),
        ended(State::Completed, ""),
    ];
    assert_eq!(of(&events), ["> paint it", "< red or green?", "> the red one", "< done"]);
}

#[test]
fn a_turn_that_did_not_end_well_is_left_out() {
    for state in [State::Failed, State::Canceled, State::Rejected] {
        let events = [accepted("hi"), reply("par", false), ended(state, "[upstream error 500]")];
        assert!(of(&events).is_empty(), "{state}");
    }
}

#[test]
fn a_turn_whose_reply_arrived_late_is_included_with_it() {
    let late = Event::Late(Artifact::new("late-reply", vec![Part::text("Hello Ada")]).into());
    let events = [accepted("I am Ada"), ended(State::Failed, "no reply in time"), late];
    assert_eq!(of(&events), ["> I am Ada", "< Hello Ada"]);
}

#[test]
fn turns_that_have_not_ended_are_left_out() {
    assert!(of(&[accepted("now"), reply("half an ans", false), accepted("later")]).is_empty());
}

#[test]
fn the_newest_messages_are_kept_without_gaps() {
    let turn =
        |text: &str| [accepted(text), reply(&format!("re {text}"), false), ended(State::Completed, "")];
    let mut few = Recollection::new(&recall(3, 10_000));
    for text in ["new", "old", "oldest"] {
        few.add(&TaskId::fresh(), &turn(text), Extent::Whole);
    }
    assert!(!few.has_room());
    assert_eq!(lines(few), ["< re old", "> new", "< re new"]);

    let mut small = Recollection::new(&recall(100, 1_000));
    for text in ["new", &"x".repeat(2_000), "oldest"] {
        small.add(&TaskId::fresh(), &turn(text), Extent::Whole);
    }
    assert_eq!(lines(small), ["> new", "< re new"], "nothing from before the one that did not fit");
}

#[test]
fn a_file_that_does_not_fit_is_replaced_by_its_name() {
    let mut file = Part::new(Content::Bytes(vec![0; 5_000]));
    file.media_type = Some("image/png".into());
    file.filename = Some("ada.png".into());
    let message = user(vec![Part::text("this is me"), file]);
    let events = [
        Event::Accepted { message, executor: "it".into(), metadata: None, trace: None },
        reply("I see", false),
        ended(State::Completed, ""),
    ];
    for (bytes, parts) in
        [(1_000, "this is me [ada.png, image/png, no longer attached]"), (9_000, "this is me")]
    {
        let mut recollection = Recollection::new(&recall(10, bytes));
        recollection.add(&TaskId::fresh(), &events, Extent::Whole);
        let first = recollection.messages().into_iter().next().unwrap();
        assert_eq!(first.parts.len(), 2);
        let said: Vec<_> = first.parts.iter().filter(|part| part.is_text()).cloned().collect();
        assert_eq!(crate::message_text(&said), parts, "{bytes}");
    }
}

#[test]
fn of_a_tail_only_what_is_certain_is_told() {
    let tail = [
        reply("answer to what came before", true),
        ended(State::InputRequired, "next?"),
        Event::moved(State::Working),
        accepted("two"),
        reply("second", false),
        ended(State::InputRequired, "next?"),
    ];
    let tell = |pending: usize| {
        let mut recollection = Recollection::new(&recall(10, 10_000));
        recollection.add(&TaskId::fresh(), &tail, Extent::Tail { pending });
        assert!(!recollection.has_room(), "nothing older is asked for");
        lines(recollection)
    };
    assert_eq!(tell(0), ["> two", "< second next?"]);
    assert!(tell(1).is_empty(), "another turn waited before the tail");
}
