use std::sync::Arc;

use talaria_turns::{Message, Part, Role};

use super::*;

/// A message of a caller; "" has no name.
fn sent(by: &str, text: &str) -> Sent {
    let message = Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) };
    Sent { by: Principal::named(by), message: Arc::new(message) }
}

/// So many different messages of a caller that end by a fault. Returns what followed from the last.
fn crash(faults: &mut Faults, by: &str, times: usize, now: Instant) -> Consequence {
    let mut last = Consequence::Nothing;
    for number in 0..times {
        last = faults.fault(Some(&sent(by, &format!("crash {number}"))), now);
    }
    last
}

fn succeed(faults: &mut Faults, by: &str, now: Instant) -> Recovery {
    faults.success(&Principal::named(by), now)
}

fn admits(faults: &Faults, by: &str, now: Instant) -> Admission {
    faults.admits(&Principal::named(by), now)
}

#[test]
fn only_faults_in_a_row_lead_to_quarantine() {
    let now = Instant::now();
    let mut faults = Faults::none();
    for _ in 0..20 {
        assert_eq!(crash(&mut faults, "", FAULTS - 1, now), Consequence::Nothing);
        succeed(&mut faults, "", now);
    }
    assert_eq!(crash(&mut faults, "", FAULTS, now), Consequence::Quarantine(FIRST_PAUSE));
    assert!(faults.is_quarantined());
    assert_eq!(crash(&mut faults, "", 9, now), Consequence::Nothing, "turns that were already running");
    assert_eq!(succeed(&mut faults, "", now), Recovery::Nothing);
    assert!(faults.is_quarantined());
}

#[test]
fn the_same_message_counts_once() {
    let now = Instant::now();
    for caller in ["", "a"] {
        let mut faults = Faults::none();
        for _ in 0..50 {
            // Each has an id of its own.
            assert_eq!(faults.fault(Some(&sent(caller, "crash")), now), Consequence::Nothing);
        }
        assert_eq!(admits(&faults, caller, now), Admission::Yes);
        assert_eq!(faults.row.len(), 1);
    }
}

#[test]
fn faults_of_probes_count_as_they_come() {
    let now = Instant::now();
    let mut faults = Faults::none();
    for _ in 1..FAULTS {
        assert_eq!(faults.fault(None, now), Consequence::Nothing);
    }
    assert_eq!(faults.fault(None, now), Consequence::Quarantine(FIRST_PAUSE));
}

#[test]
fn one_of_several_callers_is_held_back_and_the_others_are_served() {
    let mut now = Instant::now();
    let mut faults = Faults::none();
    succeed(&mut faults, "b", now);
    assert_eq!(crash(&mut faults, "a", FAULTS, now), Consequence::HeldBack(FIRST_PAUSE));
    assert_eq!(crash(&mut faults, "a", 50, now), Consequence::Nothing);
    assert!(!faults.is_quarantined());
    assert_eq!(faults.row.len(), FAULTS, "no more are kept");
    assert_eq!(admits(&faults, "a", now), Admission::HeldBack(FIRST_PAUSE));
    assert_eq!(admits(&faults, "b", now), Admission::Yes);
    assert_eq!(faults.callers_held_back(now), 1);
    now += FIRST_PAUSE;
    assert_eq!(admits(&faults, "a", now), Admission::Yes);
    let longer = FIRST_PAUSE * 2;
    assert_eq!(crash(&mut faults, "a", 1, now), Consequence::HeldBack(longer), "one more fault is enough");
    now += longer;
    succeed(&mut faults, "a", now);
    assert_eq!(crash(&mut faults, "a", FAULTS - 1, now), Consequence::Nothing, "a success clears it");
}

#[test]
fn faults_of_two_callers_lead_to_quarantine_for_all() {
    let now = Instant::now();
    let mut faults = Faults::none();
    crash(&mut faults, "a", FAULTS, now);
    assert!(faults.is_quarantined(), "only one caller was seen");

    let mut faults = Faults::none();
    succeed(&mut faults, "b", now);
    crash(&mut faults, "a", FAULTS, now);
    assert_eq!(crash(&mut faults, "b", 1, now), Consequence::Nothing, "three of one and one of the other");
    let quarantine = Consequence::Quarantine(FIRST_PAUSE);
    assert_eq!(faults.fault(Some(&sent("b", "another")), now), quarantine);
    for caller in ["", "a", "b", "c"] {
        assert_eq!(admits(&faults, caller, now), Admission::Quarantined, "{caller:?}");
    }
}

#[test]
fn a_quarantine_by_one_caller_lets_the_next_one_try() {
    let now = Instant::now();
    let by_one = || {
        let mut faults = Faults::none();
        assert_eq!(crash(&mut faults, "a", FAULTS, now), Consequence::Quarantine(FIRST_PAUSE));
        faults
    };
    let mut faults = by_one();
    assert_eq!(admits(&faults, "a", now), Admission::Quarantined);
    assert_eq!(admits(&faults, "", now), Admission::Quarantined, "it could be the same caller");
    assert_eq!(admits(&faults, "b", now), Admission::Yes);
    assert_eq!(succeed(&mut faults, "b", now), Recovery::Quarantine);
    assert!(!faults.is_quarantined());
    assert_eq!(admits(&faults, "a", now), Admission::HeldBack(FIRST_PAUSE), "it stays held back");

    let mut faults = by_one();
    crash(&mut faults, "b", 1, now);
    assert_eq!(admits(&faults, "b", now), Admission::Quarantined);
    assert_eq!(succeed(&mut faults, "c", now), Recovery::Nothing);
}

#[test]
fn a_trial_ends_by_faults_of_two_callers_while_there_are_several() {
    let now = Instant::now();
    let on_trial = || {
        let mut faults = Faults::none();
        crash(&mut faults, "a", FAULTS, now);
        crash(&mut faults, "b", 1, now);
        assert_eq!(faults.probed(true, now), None);
        faults
    };
    let mut faults = on_trial();
    for number in 0..9 {
        faults.fault(Some(&sent("a", &format!("other {number}"))), now);
    }
    assert!(!faults.is_quarantined());
    assert_eq!(crash(&mut faults, "b", 1, now), Consequence::Quarantine(FIRST_PAUSE * 2));

    let mut faults = on_trial();
    assert_eq!(faults.fault(None, now), Consequence::Quarantine(FIRST_PAUSE * 2), "a probe is nobody's");
    let mut faults = on_trial();
    assert_eq!(succeed(&mut faults, "b", now), Recovery::Trial);
}

#[test]
fn each_quarantine_is_longer_until_a_turn_succeeds() {
    let mut now = Instant::now();
    let mut faults = Faults::none();
    crash(&mut faults, "", FAULTS, now);
    let mut pause = FIRST_PAUSE;
    for longer in [20, 40, 80, 160, 320, 600, 600] {
        assert!(!faults.may_be_probed(now + pause - Duration::from_millis(1)));
        now += pause;
        assert!(faults.may_be_probed(now));
        assert_eq!(faults.probed(true, now), None);
        assert!(!faults.is_quarantined(), "on trial");
        pause = Duration::from_secs(longer);
        assert_eq!(crash(&mut faults, "", 1, now), Consequence::Quarantine(pause));
    }
    now += pause;
    assert_eq!(faults.probed(false, now), Some(LONGEST_PAUSE), "a failed probe counts as a quarantine too");
    now += LONGEST_PAUSE;
    faults.probed(true, now);
    assert_eq!(succeed(&mut faults, "", now), Recovery::Trial);
    assert_eq!(faults.standing, Standing::Serving);
}
