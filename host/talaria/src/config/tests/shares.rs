//! The shares of callers.

use talaria_turns::{CallerLimits, Principal};

use super::Given;
use crate::config::{Config, PLATFORM};

const TOKENS: &str = r#"
    [a2a.auth]
    tokens = [
      { name = "alice", token = { env = "A" } },
      { name = "bob", token = { env = "B" }, limits = { turns = 7, bytes = "1GiB", memory = "20MiB" } },
    ]
"#;

fn given(text: &str) -> Given {
    Given::file(text).variable("A", "alice-token").variable("B", "bob-token")
}

fn of(config: &Config, caller: &str) -> CallerLimits {
    *config.shares().of(&Principal::named(caller))
}

#[test]
fn several_named_callers_have_half_of_the_host_each() {
    let config = given(&format!("{TOKENS}[limits]\nturns = 100\nmemory = \"512MiB\"\n")).load();
    let half = CallerLimits {
        turns: Some(50),
        turns_per_minute: Some(6_000),
        tasks: Some(5_000),
        bytes: Some(5 << 30),
        webhooks_per_minute: Some(600),
        memory: Some(128 << 20),
    };
    assert_eq!(of(&config, "alice"), half);
    assert_eq!(
        of(&config, "bob"),
        CallerLimits { turns: Some(7), bytes: Some(1 << 30), memory: Some(20 << 20), ..half }
    );
}

#[test]
fn the_defaults_leave_a_caller_that_is_alone_to_the_limits_of_the_host() {
    let none = CallerLimits::default();
    assert_eq!(of(&Given::nothing().load(), ""), none, "callers without a name");
    let one = "[a2a.auth]\ntokens = [{ name = \"alice\", token = { env = \"A\" } }]\n";
    assert_eq!(of(&given(one).load(), "alice"), none, "the only caller");
    let workspace = given(TOKENS).variable("WORKSPACE_ID", "w1").load();
    assert_eq!(of(&workspace, PLATFORM), none, "the platform");
    assert_eq!(of(&given("").variable("WORKSPACE_ID", "w1").load(), ""), none, "an open workspace");
}

#[test]
fn a_chosen_share_applies_to_callers_without_a_name_together() {
    let chosen = "[limits.caller]\nturns_per_minute = 60\n";
    let expected = CallerLimits { turns_per_minute: Some(60), ..CallerLimits::default() };
    assert_eq!(of(&given(chosen).load(), ""), expected);
    let config = given(&format!("{TOKENS}{chosen}")).load();
    assert_eq!(of(&config, "alice").turns_per_minute, Some(60));
    assert_eq!(of(&config, "bob").turns_per_minute, Some(60), "what its token does not say");
}
