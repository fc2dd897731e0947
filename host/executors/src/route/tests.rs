//! Rules, as written in the configuration, against messages.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use talaria_turns::{Message, Part, Principal, Role};

use super::*;

#[derive(serde::Deserialize)]
struct Rules {
    route: Vec<RouteRule>,
}

fn routes(toml: &str) -> Routes {
    let Rules { route } = toml::from_str(toml).expect("valid rules");
    Routes::from_parts(&route, "stable".parse().expect("a name"), true)
}

/// A message and the request around it.
struct Sent {
    principal: Principal,
    message: Message,
    context: ContextId,
    metadata: Metadata,
    continues: Option<&'static str>,
}

impl Sent {
    fn new() -> Self {
        Self {
            principal: Principal::anyone(),
            message: Message { role: Role::User, ..Message::agent(vec![Part::text("hi")]) },
            context: ContextId::fresh(),
            metadata: Metadata::new(),
            continues: None,
        }
    }

    fn with(mut self, metadata: Value) -> Self {
        self.message.metadata = metadata.as_object().cloned();
        self
    }

    fn request(mut self, metadata: Value) -> Self {
        self.metadata = metadata.as_object().cloned().expect("an object");
        self
    }

    fn from(mut self, principal: &str) -> Self {
        self.principal = Principal::named(principal);
        self
    }

    fn to(&self, routes: &Routes) -> Result<Picked, NoExecutor> {
        let asked = RouteQuery {
            principal: &self.principal,
            message: &self.message,
            context: &self.context,
            metadata: Some(&self.metadata),
            continues: self.continues,
        };
        routes.pick(&asked, |name| name.as_str() != "gone")
    }

    fn executor(&self, routes: &Routes) -> String {
        self.to(routes).expect("somebody takes it").executor.as_str().to_owned()
    }
}

#[test]
fn the_first_rule_whose_conditions_all_hold_takes_it() {
    let routes = routes(
        r#"
        [[route]]
        skill = "papers"
        tenant = "acme*"
        executor = "both"
        [[route]]
        skill = ["papers", "search-*"]
        executor = "skilled"
        [[route]]
        principal = "platform"
        executor = "trusted"
        [[route]]
        model = "acme*"
        metadata = { tier = ["gold", "1", "true"] }
        executor = "gold"
        "#,
    );
    let tenant = |tenant: &str| json!({ "talaria/tenant": tenant });
    for (sent, executor) in [
        (Sent::new(), "stable"),
        (Sent::new().with(json!({ "skill": "papers" })), "skilled"),
        (Sent::new().with(json!({ "skillId": "search-web" })), "skilled"),
        (Sent::new().with(json!({ "skill_id": "search-web" })), "skilled"),
        (Sent::new().request(json!({ "skill": "papers" })), "skilled"),
        (Sent::new().with(json!({ "skill": "other" })).request(json!({ "skill": "papers" })), "stable"),
        (Sent::new().with(json!({ "skill": "papers" })).request(tenant("acme-eu")), "both"),
        (Sent::new().with(json!({ "skill": "papers", "talaria/tenant": "acme" })), "skilled"),
        (Sent::new().from("platform"), "trusted"),
        (Sent::new().from("platforms"), "stable"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": "gold" })), "gold"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": 1 })), "gold"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": true })), "gold"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": ["tin", "gold"] })), "gold"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": { "gold": 1 } })), "stable"),
        (Sent::new().with(json!({ "model": "acme/large-4", "tier": null })), "stable"),
        (Sent::new().with(json!({ "model": "acme/large-4" })), "stable"),
    ] {
        let (metadata, request) = (&sent.message.metadata, &sent.metadata);
        assert_eq!(sent.executor(&routes), executor, "{metadata:?} {request:?} {:?}", sent.principal);
    }
}

#[test]
fn a_choice_goes_before_the_task_and_the_task_before_the_rules() {
    let routes = routes("[[route]]\nexecutor = \"everything\"");
    let mut sent = Sent::new();
    assert_eq!(sent.to(&routes).unwrap().why, Why::Rule("route[0]".into()));
    sent.continues = Some("before");
    assert_eq!(
        sent.to(&routes).unwrap(),
        Picked { executor: "before".parse().unwrap(), why: Why::Continued }
    );
    sent.continues = Some("gone");
    assert_eq!(sent.executor(&routes), "everything", "a task whose executor is gone is routed anew");
    let chosen = Sent { continues: Some("before"), ..Sent::new().with(json!({ EXECUTOR: "mine" })) };
    assert_eq!(chosen.to(&routes).unwrap(), Picked { executor: "mine".parse().unwrap(), why: Why::Chosen });
    for bad in [json!(7), json!(""), json!("../../etc"), json!(null)] {
        let refused = Sent::new().with(json!({ EXECUTOR: bad.clone() })).to(&routes);
        assert!(matches!(refused, Err(NoExecutor::Refused(_))), "{bad}");
    }
    let closed = Routes::from_parts(&[], "stable".parse().unwrap(), false);
    assert!(matches!(chosen.to(&closed), Err(NoExecutor::Refused(_))));
}

/// The number of contexts that each executor gets.
fn spread(routes: &Routes, conversations: usize) -> BTreeMap<String, usize> {
    let mut spread = BTreeMap::new();
    for _ in 0..conversations {
        *spread.entry(Sent::new().executor(routes)).or_default() += 1;
    }
    spread
}

#[test]
fn weights_take_their_share_of_what_comes_to_them() {
    let routes = routes(
        "[[route]]\nweight = 20\nexecutor = \"first\"\n[[route]]\nweight = 50\nexecutor = \"second\"\n\
         [[route]]\nweight = 0\nexecutor = \"never\"\n[[route]]\nweight = 100\nexecutor = \"rest\"",
    );
    let spread = spread(&routes, 20_000);
    // Five standard deviations of 20 000 draws are below 360.
    for (executor, expected) in [("first", 4_000_usize), ("second", 8_000), ("rest", 8_000)] {
        assert!(spread[executor].abs_diff(expected) < 360, "{spread:?}");
    }
    assert!(!spread.contains_key("never") && !spread.contains_key("stable"), "{spread:?}");
}

#[test]
fn what_was_taken_is_counted() {
    let routes = routes("[[route]]\nname = \"papers\"\nskill = \"papers\"\nexecutor = \"first\"");
    for sent in [Sent::new(), Sent::new().with(json!({ "skill": "papers" })), Sent::new()] {
        routes.count(&sent.to(&routes).unwrap().why);
    }
    let counted = routes.counted();
    let counted: Vec<_> = counted.iter().map(|(label, count)| (label.as_str(), *count)).collect();
    assert_eq!(counted, [("papers", 1), ("chosen", 0), ("continued", 0), ("default", 2)]);
}

/// The executor of a context must not change with a release: contexts outlive upgrades.
#[test]
fn points_do_not_move() {
    let routes = routes("[[route]]\nweight = 5\nexecutor = \"canary\"");
    let context: ContextId = "0190d5a0-0000-7000-8000-000000000000".parse().unwrap();
    let at = point(&routes.rules[0].route, &context);
    assert_eq!(format!("{at:.4}"), "26.8180");
}

proptest! {
    #[test]
    fn a_conversation_stays_and_a_larger_weight_only_adds(
        context in "[a-z0-9-]{1,40}", weight in 0.0..100.0_f64, more in 0.0..100.0_f64
    ) {
        let canary = |weight: f64| routes(&format!("[[route]]\nweight = {weight:?}\nexecutor = \"canary\""));
        let sent = Sent { context: context.parse().unwrap(), ..Sent::new() };
        let (small, large) = (canary(weight.min(more)), canary(weight.max(more)));
        prop_assert_eq!(sent.executor(&small), sent.executor(&small));
        if sent.executor(&small) == "canary" {
            prop_assert_eq!(sent.executor(&large), "canary");
        }
        let again = Sent { context: context.parse().unwrap(), ..Sent::new() };
        prop_assert_eq!(sent.executor(&small), again.executor(&small), "another message of the same conversation");
    }

    #[test]
    fn a_pattern_without_stars_fits_itself_alone(text in "[a-c ü.]{0,3}", other in "[a-c ü.]{0,3}") {
        let routes = routes(&format!("[[route]]\nskill = {:?}\nexecutor = \"fits\"", format!("x{text}")));
        let sent = |text: &str| Sent::new().with(json!({ "skill": format!("x{text}") })).executor(&routes);
        prop_assert_eq!(sent(&text), "fits");
        prop_assert_eq!(sent(&other) == "fits", other == text);
    }
}
