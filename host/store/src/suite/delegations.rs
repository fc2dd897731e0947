//! Delegations.

use std::sync::Arc;

use talaria_turns::{Delegation, DelegationState, DelegationStore, Principal, TaskKey, Timestamp};

fn delegation(id: &str) -> Delegation {
    Delegation {
        id: id.into(),
        target: "peer-1".into(),
        target_name: "Ann".into(),
        task: "look it up\n\u{1F50D}".into(),
        context: None,
        turn: None,
        state: DelegationState::Sending,
        remote: None,
        result: None,
        created: Timestamp::from_millis(7),
        until: Timestamp::from_millis(9),
        ended: None,
        message: None,
        told: None,
    }
}

pub(crate) async fn delegations_are_read_back_unchanged_in_their_order(store: Arc<dyn DelegationStore>) {
    assert_eq!(store.delegations().await.unwrap(), []);
    let states = [
        DelegationState::Sending,
        DelegationState::Working,
        DelegationState::Completed,
        DelegationState::Failed,
        DelegationState::Withdrawn,
    ];
    let owner = |index: usize| if index == 0 { Principal::anyone() } else { Principal::named("ann") };
    let full = |index: usize, state| Delegation {
        context: Some("c-1".into()),
        turn: Some(TaskKey { owner: owner(index), task: "t-1".parse().unwrap() }),
        state,
        remote: Some("r".into()),
        result: Some("".into()),
        ended: Some(Timestamp::from_millis(8)),
        message: Some("m".into()),
        told: Some(Timestamp::from_millis(10)),
        ..delegation(&format!("id-{}", 9 - index))
    };
    let mut all: Vec<_> = states.into_iter().enumerate().map(|(index, state)| full(index, state)).collect();
    all.push(delegation("last"));
    for one in &all {
        store.put_delegation(one).await.unwrap();
    }
    assert_eq!(store.delegations().await.unwrap(), all);
}

pub(crate) async fn a_delegation_is_replaced_as_a_whole_and_deleted(store: Arc<dyn DelegationStore>) {
    for id in ["one", "two"] {
        store.put_delegation(&delegation(id)).await.unwrap();
    }
    let ended =
        Delegation { state: DelegationState::Completed, result: Some("found".into()), ..delegation("one") };
    store.put_delegation(&ended).await.unwrap();
    assert_eq!(store.delegations().await.unwrap(), [ended, delegation("two")], "its place stays");
    store.delete_delegations(&["one".into(), "nobody's".into()]).await.unwrap();
    assert_eq!(store.delegations().await.unwrap(), [delegation("two")]);
}
