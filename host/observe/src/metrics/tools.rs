//! Calls of tools: of this host's by its agent, and of other servers' by executors.

use super::by_name::ByName;
use super::closed::closed;
use super::family::{Family, Kind, Label};
use super::number::{Counters, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// How a call of a tool ended.
    ToolEnd {
        /// The tool did what it was asked.
        Done = "done",
        /// The call was wrong or not allowed.
        Refused = "refused",
        /// What the tool needs failed.
        Failed = "failed",
        /// The agent disconnected before the end, or the turn was over.
        Abandoned = "abandoned",
    }
}

static CALLS: Family = Family {
    name: "talaria_tool_calls_total",
    kind: Kind::Counter,
    labels: &[Label::named("tool", "the tools of this host"), Label::of::<ToolEnd>("end")],
    help: "Calls of the agent's tools, and how they ended",
    question: "Which tools does the agent use, and do they work?",
};
static SERVER_CALLS: Family = Family {
    name: "talaria_tool_server_calls_total",
    kind: Kind::Counter,
    labels: &[Label::named("server", "configured servers"), Label::of::<ToolEnd>("end")],
    help: "Calls of the tools of servers that the operator names, and how they ended",
    question: "Do the servers of tools work?",
};
static SERVER_UP: Family = Family {
    name: "talaria_tool_server_up",
    kind: Kind::Gauge,
    labels: &[Label::named("server", "configured servers")],
    help: "Whether the server listed its tools when it was last asked",
    question: "Can a server of tools be used?",
};

/// Calls of tools.
#[derive(Default)]
pub struct Tools {
    calls: ByName<Counters<ToolEnd>>,
    servers: ByName<Counters<ToolEnd>>,
    now: Watched<Vec<(String, bool)>>,
}

// === impl Tools ===

impl Tools {
    /// Counts a call of a tool of this host.
    pub fn called(&self, tool: &'static str, end: ToolEnd) {
        self.calls.with(tool, |ends| ends.inc(end));
    }

    /// Counts a call of a tool of a server. The server's name must come from the configuration.
    pub fn server_called(&self, server: &str, end: ToolEnd) {
        self.servers.with(server, |ends| ends.inc(end));
    }

    /// Sets the function that reads the servers, and whether each listed its tools when it was last asked; it must not block.
    /// Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Vec<(String, bool)> + Send + Sync + 'static) {
        self.now.set(read);
    }
}

impl Source for Tools {
    fn title(&self) -> &'static str {
        "Tools"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&CALLS, &SERVER_CALLS, &SERVER_UP]
    }

    fn write(&self, page: &mut Page) {
        for (family, all) in [(&CALLS, self.calls.all()), (&SERVER_CALLS, self.servers.all())] {
            let mut samples = page.family(family);
            all.iter().for_each(|(name, ends)| samples.counters(name, ends));
        }
        let mut samples = page.family(&SERVER_UP);
        for (server, is_up) in self.now.read().unwrap_or_default() {
            samples.value(&[&server], u8::from(is_up));
        }
    }
}
