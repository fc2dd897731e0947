//! Requests to the A2A port, in every binding alike.
//!
//! A request counts when its answer begins: a stream counts with the time until then.

use std::time::Duration;

use super::closed::{Closed, closed};
use super::family::{Family, Kind, Label};
use super::number::{CALL, Counters, Histogram, Watched};
use super::page::Page;
use super::registry::Source;

closed! {
    /// What a request asks for, by the names of A2A 1.0, whatever its version and binding.
    Operation {
        /// Send a message.
        Send = "SendMessage",
        /// Send a message and read the answer as a stream.
        Stream = "SendStreamingMessage",
        /// Read a task.
        Get = "GetTask",
        /// List tasks.
        List = "ListTasks",
        /// Cancel a task.
        Cancel = "CancelTask",
        /// Read what happens to a task as a stream.
        Subscribe = "SubscribeToTask",
        /// Push configurations: create one.
        CreatePush = "CreateTaskPushNotificationConfig",
        /// Read one.
        GetPush = "GetTaskPushNotificationConfig",
        /// List them.
        ListPush = "ListTaskPushNotificationConfigs",
        /// Delete one.
        DeletePush = "DeleteTaskPushNotificationConfig",
        /// Read the extended card.
        ExtendedCard = "GetExtendedAgentCard",
        /// Read the card.
        Card = "card",
        /// Something else: an unknown method or path.
        Other = "other",
    }
}

closed! {
    /// The version of A2A.
    Version {
        /// 1.0.
        V1 = "1.0",
        /// 0.3.
        V03 = "0.3",
        /// It is not known, as for the card.
        None = "none",
    }
}

closed! {
    /// How a request was answered.
    Status {
        /// Informational.
        Status1 = "1xx",
        /// It was performed.
        Status2 = "2xx",
        /// Not modified.
        Status3 = "3xx",
        /// The request is wrong, or not allowed.
        Status4 = "4xx",
        /// The host failed.
        Status5 = "5xx",
        /// An error of JSON-RPC, whose status in HTTP is 200.
        RpcError = "rpc-error",
    }
}

closed! {
    /// Why a request was refused: with 403 if it is foreign, with 429 otherwise.
    Refusal {
        /// Too many connections.
        Connections = "connections",
        /// Too many turns: over `limits.turns`.
        Turns = "turns",
        /// Too many turns of one context.
        Conversation = "conversation",
        /// No memory.
        Memory = "memory",
        /// The host is shutting down.
        Draining = "draining",
        /// Too many turns of one caller.
        CallerTurns = "caller-turns",
        /// Too many messages of one caller within a minute.
        CallerRate = "caller-rate",
        /// Too many tasks of one caller are stored.
        CallerTasks = "caller-tasks",
        /// Too many bytes of one caller are stored.
        CallerBytes = "caller-bytes",
        /// Too many webhooks of one caller within a minute.
        CallerWebhooks = "caller-webhooks",
        /// One caller takes too much memory.
        CallerMemory = "caller-memory",
        /// The store is full.
        StoreFull = "store-full",
        /// A page of another site sent it, or it uses a name that is not this server's.
        Foreign = "foreign",
    }
}

static REQUESTS: Family = Family {
    name: "talaria_requests_total",
    kind: Kind::Counter,
    labels: &[
        Label::of::<Operation>("operation"),
        Label::of::<Version>("version"),
        Label::of::<Status>("status"),
    ],
    help: "Requests to the A2A port, by operation, version of A2A and class of the status",
    question: "What do callers ask for, in which version, and does it work?",
};
static DURATION: Family = Family {
    name: "talaria_request_duration_seconds",
    kind: Kind::Histogram,
    labels: &[Label::of::<Operation>("operation")],
    help: "How long requests took until their answer began; a blocking send includes its turn",
    question: "Which operation is slow?",
};
static REFUSED: Family = Family {
    name: "talaria_requests_refused_total",
    kind: Kind::Counter,
    labels: &[Label::of::<Refusal>("reason")],
    help: "Requests answered with 429, or with 403 if foreign, by reason",
    question: "Who is turned away, and by which limit?",
};
static STREAMS: Family = Family {
    name: "talaria_streams_open",
    kind: Kind::Gauge,
    labels: &[],
    help: "Streams that are read",
    question: "How many clients read along?",
};

/// The requests to the A2A port.
pub struct Requests {
    /// In the order of operations, then of versions.
    counted: Box<[Counters<Status>]>,
    /// In the order of operations.
    took: Box<[Histogram]>,
    now: Watched<Now>,
}

/// What the server counts itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Now {
    /// Open streams.
    pub streams_open: usize,
    /// Requests refused since the start, by reason.
    pub refused: Vec<(Refusal, u64)>,
}

// === impl Requests ===

impl Requests {
    /// Counts an answered request.
    pub fn answered(&self, operation: Operation, version: Version, status: Status, took: Duration) {
        let place = operation.index() * Version::NAMES.len() + version.index();
        if let Some(counted) = self.counted.get(place) {
            counted.inc(status);
        }
        if let Some(histogram) = self.took.get(operation.index()) {
            histogram.took(took);
        }
    }

    /// Sets the function that reads what the server counts; it must not block. Only the first call has an effect.
    pub fn watch(&self, read: impl Fn() -> Now + Send + Sync + 'static) {
        self.now.set(read);
    }
}

impl Default for Requests {
    fn default() -> Self {
        let places = Operation::NAMES.len() * Version::NAMES.len();
        Self {
            counted: (0..places).map(|_| Counters::default()).collect(),
            took: Operation::NAMES.iter().map(|_| Histogram::new(&CALL)).collect(),
            now: Watched::default(),
        }
    }
}

// === impl Operation ===

impl Operation {
    /// The operation that a method of JSON-RPC or gRPC, or a route with its HTTP method, is.
    #[must_use]
    pub fn of(name: &str, method: &str) -> Self {
        match (name, method) {
            ("SendMessage" | "message/send" | "message:send", _) => Self::Send,
            ("SendStreamingMessage" | "message/stream" | "message:stream", _) => Self::Stream,
            ("GetTask" | "tasks/get", _) | ("task", "GET") => Self::Get,
            ("ListTasks" | "tasks/list", _) | ("tasks", "GET") => Self::List,
            ("CancelTask" | "tasks/cancel" | "task:cancel", _) => Self::Cancel,
            ("SubscribeToTask" | "TaskSubscription" | "tasks/resubscribe" | "task:subscribe", _) => {
                Self::Subscribe
            }
            ("CreateTaskPushNotificationConfig" | "tasks/pushNotificationConfig/set", _)
            | ("pushNotificationConfigs", "POST") => Self::CreatePush,
            ("GetTaskPushNotificationConfig" | "tasks/pushNotificationConfig/get", _)
            | ("pushNotificationConfig", "GET") => Self::GetPush,
            (
                "ListTaskPushNotificationConfigs"
                | "ListTaskPushNotificationConfig"
                | "tasks/pushNotificationConfig/list",
                _,
            )
            | ("pushNotificationConfigs", "GET") => Self::ListPush,
            ("DeleteTaskPushNotificationConfig" | "tasks/pushNotificationConfig/delete", _)
            | ("pushNotificationConfigs" | "pushNotificationConfig", "DELETE") => Self::DeletePush,
            (
                "GetExtendedAgentCard"
                | "GetAgentCard"
                | "agent/getAuthenticatedExtendedCard"
                | "extendedAgentCard",
                _,
            ) => Self::ExtendedCard,
            ("card", _) => Self::Card,
            _ => Self::Other,
        }
    }
}

// === impl Version ===

impl Version {
    /// The version of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "1.0" => Self::V1,
            "0.3" => Self::V03,
            _ => Self::None,
        }
    }
}

// === impl Status ===

impl Status {
    /// The class of a status; `is_error` if the answer is an error of JSON-RPC.
    #[must_use]
    pub fn of(status: u16, is_error: bool) -> Self {
        match status {
            100..200 => Self::Status1,
            200..300 if is_error => Self::RpcError,
            200..300 => Self::Status2,
            300..400 => Self::Status3,
            400..500 => Self::Status4,
            _ => Self::Status5,
        }
    }
}

impl Source for Requests {
    fn title(&self) -> &'static str {
        "Requests"
    }

    fn families(&self) -> Vec<&'static Family> {
        vec![&REQUESTS, &DURATION, &REFUSED, &STREAMS]
    }

    fn write(&self, page: &mut Page) {
        let mut samples = page.family(&REQUESTS);
        let places = Operation::NAMES
            .iter()
            .flat_map(|operation| Version::NAMES.iter().map(move |version| (operation, version)));
        // Of all combinations, few ever happen.
        for ((operation, version), counted) in places.zip(&self.counted) {
            for (status, count) in counted.all().filter(|(_, count)| *count > 0) {
                samples.value(&[operation, version, status], count);
            }
        }
        let mut samples = page.family(&DURATION);
        for (operation, histogram) in Operation::NAMES.iter().zip(&self.took) {
            if histogram.buckets().last().is_some_and(|(_, count)| count > 0) {
                samples.histogram(&[operation], histogram);
            }
        }
        let now = self.now.read();
        let mut samples = page.family(&REFUSED);
        for (reason, count) in now.iter().flat_map(|now| &now.refused) {
            samples.value(&[Refusal::NAMES.get(reason.index()).copied().unwrap_or_default()], count);
        }
        let mut samples = page.family(&STREAMS);
        now.iter().for_each(|now| samples.value(&[], now.streams_open));
    }
}
