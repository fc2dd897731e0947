//! The names of spans and attributes, all in one place.
//!
//! Those that are not `talaria.*` are of the OpenTelemetry semantic conventions [`SCHEMA_URL`], where `gen_ai.*` is still under
//! development. A newer version is taken over here as a whole, with a line in the changelog: people query these names.

/// The version of the conventions.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

// Spans.
pub(crate) const REQUEST: &str = "a2a.request";
pub(crate) const TURN: &str = "turn";
pub(crate) const GUEST: &str = "guest.execute";
pub(crate) const EGRESS: &str = "egress.send";
pub(crate) const CALLBACK: &str = "callback.wait";
pub(crate) const PUSH: &str = "push.deliver";

// Values of `gen_ai.operation.name`; a tool's span is named after it.
pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";

// Attributes of the conventions.
pub(crate) const OPERATION: &str = "gen_ai.operation.name";
pub(crate) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(crate) const AGENT_ID: &str = "gen_ai.agent.id";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(crate) const MODEL: &str = "gen_ai.request.model";
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const INPUT: &str = "gen_ai.input.messages";
pub(crate) const OUTPUT: &str = "gen_ai.output.messages";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
pub(crate) const METHOD: &str = "http.request.method";
pub(crate) const STATUS: &str = "http.response.status_code";
pub(crate) const SENT: &str = "http.request.body.size";
pub(crate) const RECEIVED: &str = "http.response.body.size";
pub(crate) const URL: &str = "url.full";
pub(crate) const ADDRESS: &str = "server.address";
pub(crate) const PORT: &str = "server.port";
pub(crate) const ERROR: &str = "error.type";
pub(crate) const RPC_METHOD: &str = "rpc.method";
pub(crate) const SERVICE: &str = "service.name";
pub(crate) const SERVICE_VERSION: &str = "service.version";

// Attributes of ours.
pub(crate) const TASK: &str = "talaria.task.id";
pub(crate) const CALLER: &str = "talaria.caller";
pub(crate) const STATE: &str = "talaria.turn.state";
pub(crate) const QUEUED: &str = "talaria.turn.queued_ms";
pub(crate) const FIRST_TEXT: &str = "talaria.turn.first_text_ms";
pub(crate) const OMITTED: &str = "talaria.turn.steps_omitted";
pub(crate) const VERSION: &str = "talaria.executor.version";
pub(crate) const WAITED: &str = "talaria.guest.waited_ms";
pub(crate) const COMPUTED: &str = "talaria.guest.cpu_ms";
pub(crate) const MEMORY: &str = "talaria.guest.memory_bytes";
pub(crate) const DENIED: &str = "talaria.denied";
pub(crate) const A2A_VERSION: &str = "talaria.a2a.version";
pub(crate) const CODE: &str = "talaria.a2a.error_code";
