//! The chat-completions executor, which behaves as the Python bridge did, against a gateway that behaves like
//! hermes-agent.

mod cancelled;
mod denied;
mod errors;
mod failed_in_200;
mod history;
mod long_text;
mod parts;
mod probe;
mod request;
mod restart;
mod session;
mod shapes;
mod streamed;
mod transcript;

use talaria_fakes::{FakeGateway, Reply};
use talaria_rig::Rig;

/// The gateway's key; the executor may name it but never sees it.
const KEY: &str = "API_SERVER_KEY";

/// The executor, pointed at this gateway, with the calls that its settings imply granted.
async fn rig(gateway: &FakeGateway) -> Rig {
    Rig::new("chat-completions").await.setting("base_url", gateway.base_url())
}

/// A gateway that answers `hi`.
async fn polite() -> FakeGateway {
    FakeGateway::always(Reply::completion("hi")).await
}
