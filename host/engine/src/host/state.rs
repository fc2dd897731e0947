//! The import `state`: values, history and checkpoints that an executor stores for a context.
//!
//! Keys, values and the total per context are limited in size, and so is the history that a call returns. What a turn
//! writes is charged to its budget. If the store fails, the guest gets `unavailable` and the log gets the cause.

use talaria_egress::DenialKind;
use talaria_turns::StoreError;
use wasmtime::Result;

use super::Ctx;
use crate::contract::bindings::talaria::executor::{state as wit, types};
use crate::size::{ENTRY, Size};

/// The size of the longest key.
const MAX_KEY: usize = 256;
/// The size of the largest value. State is for ids and cursors, not for documents.
const MAX_VALUE: usize = 64 << 10;
/// The maximum number of messages of a context that one call returns.
const MAX_HISTORY: usize = 1_000;
/// The maximum size of these messages, which the guest has to hold in memory. It is more text than a model reads, with
/// room for a picture or two.
const MAX_HISTORY_BYTES: usize = 4 << 20;

fn rejected(kind: wit::ErrorKind, message: impl Into<String>) -> wit::Error {
    wit::Error { kind, message: message.into() }
}

fn unavailable(error: &StoreError) -> wit::Error {
    tracing::warn!(%error, "executor state not read or stored");
    rejected(wit::ErrorKind::Unavailable, "the store did not take it")
}

fn no_state() -> wit::Error {
    rejected(wit::ErrorKind::Unsupported, "only a turn has state")
}

impl Ctx {
    fn remembering(&self, key: &str) -> Result<&talaria_turns::Scope, wit::Error> {
        if key.len() > MAX_KEY {
            return Err(rejected(
                wit::ErrorKind::TooLarge,
                format!("the key is longer than {MAX_KEY} bytes"),
            ));
        }
        self.scope().ok_or_else(no_state)
    }
}

impl wit::Host for Ctx {
    async fn get(&mut self, key: String) -> Result<Result<Option<Vec<u8>>, wit::Error>> {
        let scope = match self.remembering(&key) {
            Ok(scope) => scope,
            Err(error) => return Ok(Err(error)),
        };
        let value = scope.state(&key).await;
        let bytes = value.as_ref().ok().and_then(Option::as_ref).map(|value| value.len());
        tracing::trace!(target: "import", key, bytes, "state.get");
        Ok(value.map(|value| value.map(|value| value.to_vec())).map_err(|error| unavailable(&error)))
    }

    async fn set(&mut self, key: String, value: Option<Vec<u8>>) -> Result<Result<(), wit::Error>> {
        if let Err(error) = self.remembering(&key) {
            return Ok(Err(error));
        }
        if value.as_ref().is_some_and(|value| value.len() > MAX_VALUE) {
            return Ok(Err(rejected(
                wit::ErrorKind::TooLarge,
                format!("the value is larger than {MAX_VALUE} bytes"),
            )));
        }
        // A value is stored as it is, not as base64.
        let bytes = value.as_ref().map_or(0, Vec::len);
        let size = Size::of(ENTRY + bytes).text(&key);
        if let Err(why) = self.charge(0, size) {
            return Ok(Err(rejected(wit::ErrorKind::TooLarge, why)));
        }
        let Some(scope) = self.scope() else { return Ok(Err(no_state())) };
        if let (Some(value), Some(shared)) = (&value, self.shared()) {
            let most = self.limits.state_bytes;
            match scope.state_beside(&key).await {
                Err(error) => return Ok(Err(unavailable(&error))),
                Ok(beside) if beside.saturating_add(key.len() + value.len()) > most => {
                    let add = format!("state = \"{}KiB\"", (most >> 9).max(1));
                    let what = format_args!("remember more than {most} bytes of a conversation");
                    return Ok(Err(rejected(
                        wit::ErrorKind::TooLarge,
                        shared.access.deny(DenialKind::State, what, &add),
                    )));
                }
                Ok(_) => {}
            }
        }
        tracing::trace!(target: "import", key, bytes = value.as_ref().map(Vec::len), "state.set");
        Ok(scope.set_state(&key, value.map(Into::into)).await.map_err(|error| unavailable(&error)))
    }

    async fn history(&mut self, max: u32) -> Result<Result<Vec<types::Message>, wit::Error>> {
        let scope = match self.remembering("") {
            Ok(scope) => scope,
            Err(error) => return Ok(Err(error)),
        };
        let most = usize::try_from(max).unwrap_or(usize::MAX).min(MAX_HISTORY);
        let history = scope.history(most, MAX_HISTORY_BYTES).await;
        let messages = history.as_ref().ok().map(Vec::len);
        tracing::trace!(target: "import", max, messages, "state.history");
        Ok(match history {
            Ok(messages) => Ok(messages.iter().map(|message| self.message(message)).collect()),
            Err(error) => {
                tracing::warn!(%error, "history of a context not read");
                Err(rejected(wit::ErrorKind::Unavailable, "the store could not read the conversation"))
            }
        })
    }

    async fn checkpoint(&mut self, data: Vec<u8>) -> Result<Result<(), wit::Error>> {
        if let Err(error) = self.remembering("") {
            return Ok(Err(error));
        }
        if data.len() > MAX_VALUE {
            let message = format!("the data is larger than {MAX_VALUE} bytes");
            return Ok(Err(rejected(wit::ErrorKind::TooLarge, message)));
        }
        if let Err(why) = self.charge(1, Size::of(ENTRY).base64(&data)) {
            return Ok(Err(rejected(wit::ErrorKind::TooLarge, why)));
        }
        let Some(scope) = self.scope() else { return Ok(Err(no_state())) };
        Ok(scope.checkpoint(data).await.map_err(|error| unavailable(&error)))
    }
}
