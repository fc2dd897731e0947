use super::*;

const STATES: [State; 8] = [
    State::Submitted,
    State::Working,
    State::InputRequired,
    State::AuthRequired,
    State::Completed,
    State::Failed,
    State::Canceled,
    State::Rejected,
];

fn task() -> Task {
    Task::new(TaskId::fresh(), ContextId::fresh())
}

fn delta(text: &str, append: bool) -> Event {
    let artifact = Artifact::new(REPLY, vec![Part::text(text)]).into();
    Event::Artifact { artifact, append, last: false }
}

#[test]
fn a_resumed_turn_keeps_the_time_at_which_it_began() {
    let mut task = task();
    let message = Arc::new(Message::agent(vec![Part::text("hi")]));
    let at = |millis, ends_turn| Event::Status {
        status: Status { state: State::Working, message: None, at: Timestamp::from_millis(millis) },
        metadata: None,
        ends_turn,
    };
    let accepted = Event::Accepted { message, executor: "echo".into(), metadata: None, trace: None };
    for event in [accepted.clone(), accepted, at(1, false), at(2, false)] {
        task.apply(&event).unwrap();
    }
    let begun = |task: &Task| task.pending.iter().map(|turn| turn.begun).collect::<Vec<_>>();
    assert_eq!(begun(&task), [Some(Timestamp::from_millis(1)), None], "a restart sets the status again");
    task.apply(&at(3, true)).unwrap();
    assert_eq!(begun(&task), [Some(Timestamp::from_millis(3))], "the next turn");
}

#[test]
fn a_terminal_state_is_final() {
    for terminal in STATES.into_iter().filter(|state| state.is_terminal()) {
        let mut task = task();
        task.apply(&Event::moved(terminal)).unwrap();
        let before = task.clone();
        for next in STATES {
            assert_eq!(
                task.apply(&Event::moved(next)),
                Err(IllegalMove { from: terminal, to: Some(next) }),
                "{terminal} must not become {next}"
            );
        }
        assert!(task.apply(&delta("late", true)).is_err(), "no artifact after {terminal}");
        assert_eq!(task, before, "a rejected event changes nothing");
    }
}

#[test]
fn only_a_failed_task_takes_a_late_reply_and_it_stays_failed() {
    let Event::Artifact { artifact, .. } = delta("late", false) else { panic!("an artifact") };
    let late = Event::Late(Arc::new(Artifact { id: "late-reply".into(), ..(*artifact).clone() }));
    for state in STATES {
        let mut task = task();
        task.apply(&Event::said(state, vec![Part::text("no reply in time")])).unwrap();
        let before = task.clone();
        if state == State::Failed {
            task.apply(&late).unwrap();
            assert_eq!(task.status, before.status);
            assert_eq!((task.version, task.artifacts.len()), (2, 1));
        } else {
            assert_eq!(task.apply(&late), Err(IllegalMove { from: state, to: None }));
            assert_eq!(task, before, "a rejected event changes nothing");
        }
    }
}

#[test]
fn no_state_goes_back_to_submitted() {
    for from in [State::Working, State::InputRequired, State::AuthRequired] {
        assert!(!from.may_become(State::Submitted), "{from}");
    }
}

#[test]
fn the_message_of_a_status_is_added_to_the_history_by_the_next_status() {
    let mut task = task();
    task.apply(&Event::said(State::InputRequired, vec![Part::text("which one?")])).unwrap();
    assert!(task.history.is_empty());
    task.apply(&Event::moved(State::Working)).unwrap();
    assert_eq!(task.history[0].parts, vec![Part::text("which one?")]);
    assert_eq!(task.status.message, None);
}

#[test]
fn deltas_add_up_to_one_text_and_each_event_is_a_version() {
    let mut task = task();
    task.apply(&delta("Hel", false)).unwrap();
    task.apply(&delta("lo", true)).unwrap();
    assert_eq!(task.artifacts.len(), 1);
    assert_eq!(task.artifacts[0].parts, vec![Part::text("Hello")]);
    assert_eq!(task.version, 2);
    task.apply(&delta("Goodbye", false)).unwrap();
    assert_eq!(task.artifacts[0].parts, vec![Part::text("Goodbye")], "without append it replaces");
}

#[test]
fn a_text_reply_is_a_message_with_a_stable_id() {
    let mut task = task();
    task.apply(&delta("hi", false)).unwrap();
    assert_eq!(task.text_reply(), None, "not before the task ends");
    task.apply(&Event::moved(State::Completed)).unwrap();
    let reply = task.text_reply().unwrap();
    assert_eq!(reply.parts, vec![Part::text("hi")]);
    assert_eq!(reply.id, task.text_reply().unwrap().id);
}
