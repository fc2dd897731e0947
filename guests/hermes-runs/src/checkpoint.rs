//! What is kept of a turn, so that a restart of this host loses nothing.

use serde::{Deserialize, Serialize};
use talaria_guest::{Failure, FailureKind, log, state};

use crate::approval::Approval;

/// The run, and the approval that the caller is being asked for.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asking: Option<Approval>,
}

impl Checkpoint {
    pub(crate) fn new(run: String) -> Self {
        Self { run, asking: None }
    }

    pub(crate) fn read(kept: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(kept).map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                format!("[hermes-agent error] the checkpoint is unreadable: {error}"),
            )
        })
    }

    /// Keeps it. A turn that cannot be kept is followed all the same.
    pub(crate) fn keep(&self) {
        let kept = serde_json::to_vec(self).map_err(|error| error.to_string());
        let kept = kept.and_then(|data| state::checkpoint(&data).map_err(|error| error.message));
        if let Err(why) = kept {
            log::write(
                log::Level::Warn,
                &format!("the run is not kept, so a restart would lose it: {why}"),
                None,
            );
        }
    }
}
