//! A thousand concurrent turns in a thousand chats, answered in any order, some twice, some late.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use talaria_egress::{Access, Config, Egress};
use talaria_engine::{Component, Engine, EngineConfig, Executor, GrantedTools, Limits, Spec, Wasi};
use talaria_fakes::{FakePlugin, Step, guest, soon};
use talaria_mailbox::Counts;
use talaria_rig::MailHost;
use talaria_store::{Sqlite, SqliteConfig};
use talaria_turns::{
    Callbacks, Content, Incoming, Message, NoExecutor, Part, Principal, Role, Route, RouteQuery, State,
    Timestamp, Turns,
};
use tokio::task::JoinSet;

const TURNS: usize = 1_000;

/// One executor for every message.
struct Only(Arc<Executor>);

impl Route for Only {
    fn pick(&self, _: &RouteQuery<'_>) -> Result<Arc<dyn talaria_turns::Executor>, NoExecutor> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn named(&self, _: &str) -> Option<Arc<dyn talaria_turns::Executor>> {
        Some(Arc::clone(&self.0) as _)
    }
}

async fn executor(plugin: &FakePlugin, callbacks: Arc<dyn Callbacks>) -> Arc<Executor> {
    let cache = std::env::current_exe().unwrap().parent().unwrap().join("rig-components");
    let config =
        EngineConfig { slots: 1_100, scripted_slots: 1, cache_dir: Some(cache), ..EngineConfig::default() };
    let engine = Engine::new(&config, Egress::new(Config::default())).unwrap();
    let component = Component::load(&engine, guest("plugin-callback"), |_| ()).await.unwrap();
    let mut settings = serde_json::Map::new();
    settings.insert("inbound_url".into(), plugin.inbound_url().into());
    settings.insert("health_url".into(), plugin.health_url().into());
    // The late answers miss this deadline.
    settings.insert("reply_timeout_seconds".into(), 20.into());
    let patterns = vec![format!("POST {}", plugin.inbound_url()).parse().unwrap()];
    Arc::new(Executor::new(Spec {
        name: "plugin-callback".into(),
        settings: component.settings(&settings).unwrap(),
        component: Arc::new(component),
        access: Arc::new(Access { patterns, ..Access::default() }),
        limits: Limits { deadline: Duration::from_secs(120), ..Limits::default() },
        wasi: Wasi { random: true, ..Wasi::default() },
        callbacks: Some(callbacks),
        tools: GrantedTools::default(),
    }))
}

fn incoming(text: &str) -> Incoming {
    let message = Message { role: Role::User, ..Message::agent(vec![Part::text(text)]) };
    Incoming {
        principal: Principal::anyone(),
        message: message.into(),
        task: None,
        context: None,
        streaming: false,
        async_delivery: false,
        metadata: None,
        push: None,
        trace: None,
    }
}

/// Shuffles by xorshift, the same in every run.
fn shuffled<T>(mut items: Vec<T>) -> Vec<T> {
    let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..items.len()).rev() {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        items.swap(at, usize::try_from(chance % (at as u64 + 1)).unwrap());
    }
    items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_turns_each_get_their_own_answer_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(&folder.path().join("t.db"), &SqliteConfig::default()).unwrap());
    // The agent does not answer by itself: the test does, in an order of its own.
    let plugin = FakePlugin::start(|_| vec![Step::Wait]).await;
    let mail = MailHost::on(Arc::clone(&store) as _, None).await;
    let executor = executor(&plugin, mail.callbacks()).await;
    let turns = Turns::new(store, Arc::new(Only(executor)), talaria_turns::Limits::default());

    let mut sending = JoinSet::new();
    for turn in 0..TURNS {
        let turns = turns.clone();
        sending.spawn(async move {
            let accepted = turns.send(incoming(&format!("question {turn}"))).await.unwrap();
            (turn, accepted.settled().await)
        });
    }
    let messages = plugin.received(TURNS).await;
    assert_eq!(mail.mailbox.counts().waiting, TURNS, "all of them are in flight at once");
    let chats: HashSet<&str> = messages.iter().map(|message| message.chat()).collect();
    assert_eq!(chats.len(), TURNS);

    // Every tenth answer is late; every seventh of the others is sent twice.
    let is_late = |text: &str| text.ends_with('0');
    let mut posting = JoinSet::new();
    let plugin = Arc::new(plugin);
    let refused = Arc::new(Mutex::new(Vec::new()));
    for (nth, message) in shuffled(messages.clone()).into_iter().enumerate() {
        if is_late(message.content()) {
            continue;
        }
        let (plugin, url, refused) = (Arc::clone(&plugin), mail.url.clone(), Arc::clone(&refused));
        posting.spawn(async move {
            let answer = format!("answer to {}", message.content());
            for _ in 0..if nth % 7 == 0 { 2 } else { 1 } {
                // A notice comes first, which changes nothing.
                plugin.callback(&url, message.chat(), None, "⏳ Working").await;
                let (status, _) = plugin.callback(&url, message.chat(), Some(message.id()), &answer).await;
                if status != 200 {
                    refused.lock().unwrap().push(status);
                }
            }
        });
    }
    soon("the answers are taken", posting.join_all()).await;
    assert!(refused.lock().unwrap().is_empty(), "{:?}", refused.lock().unwrap());
    let mut ended = HashMap::new();
    while let Some(done) = sending.join_next().await {
        let (turn, task) = done.unwrap();
        ended.insert(turn, task);
    }
    for (turn, task) in &ended {
        let question = format!("question {turn}");
        if is_late(&question) {
            assert_eq!(task.status.state, State::Failed, "{question}");
            let said = &task.status.message.as_ref().unwrap().parts[0].content;
            assert_eq!(*said, Content::Text("[hermes plugin reply timeout after 20s]".into()));
        } else {
            assert_eq!(task.status.state, State::Completed, "{question}");
            let said = &task.artifacts[0].parts[0].content;
            assert_eq!(*said, Content::Text(format!("answer to {question}")));
        }
    }

    // The late answers come now, and are stored with their own tasks.
    for message in messages.iter().filter(|message| is_late(message.content())) {
        let answer = format!("answer to {}", message.content());
        let (_, receipt) = plugin.callback(&mail.url, message.chat(), Some(message.id()), &answer).await;
        assert_eq!(receipt["stale"], true);
    }
    let late = mail.mailbox.late(TURNS).await.unwrap();
    assert_eq!(late.len(), TURNS / 10);
    for kept in &late {
        let turn = ended.iter().find(|(_, task)| task.id == kept.task.task).unwrap().0;
        assert_eq!(kept.text, format!("answer to question {turn}"));
    }
    let Counts { waiting, in_line, orphans, .. } = mail.mailbox.counts();
    assert_eq!((waiting, in_line, orphans), (0, 0, 0), "nobody waits any more");
    let in_two_days = Timestamp::from_millis(Timestamp::now().millis() + 2 * 24 * 3_600 * 1_000);
    mail.mailbox.sweep(in_two_days);
    assert_eq!(mail.mailbox.counts(), Counts::default(), "and nothing is left for ever");
}
