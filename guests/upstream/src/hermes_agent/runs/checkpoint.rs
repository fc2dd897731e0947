//! What is stored of a turn, so that a restart of this host does not lose its run.

use serde::{Deserialize, Serialize};
use talaria_guest::{Failure, FailureKind, state};

use super::approval::Approval;
use crate::warn;

/// The run, and the approval that the caller is being asked for.
#[derive(Serialize, Deserialize)]
pub struct Checkpoint {
    pub(super) run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asking: Option<Approval>,
}

impl Checkpoint {
    pub(super) fn new(run: String) -> Self {
        Self { run, asking: None }
    }

    /// Reads a checkpoint that must be that of a run.
    ///
    /// # Errors
    /// The failure that the caller reads.
    pub fn read(stored: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(stored).map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                format!("[hermes-agent error] the checkpoint is unreadable: {error}"),
            )
        })
    }

    /// Reads a checkpoint that may be that of a run; `None` if it is not.
    #[must_use]
    pub fn of_run(stored: Option<&[u8]>) -> Option<Self> {
        serde_json::from_slice(stored?).ok()
    }

    /// Stores it. If that fails, the run is followed all the same.
    pub(super) fn store(&self) {
        let stored = serde_json::to_vec(self).map_err(|error| error.to_string());
        let stored = stored.and_then(|data| state::checkpoint(&data).map_err(|error| error.message));
        if let Err(why) = stored {
            warn(&format!("run not checkpointed; a restart would lose it: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_from_other_checkpoints() {
        for (stored, run) in [
            (r#"{"run":"run_1"}"#, Some("run_1")),
            (r#"{"run":"run_1","asking":null,"later":1}"#, Some("run_1")),
            (r#"{"key":"task-1","stream":false,"body":"00"}"#, None),
            (r#"{"run":7}"#, None),
            ("", None),
        ] {
            let read = Checkpoint::of_run(Some(stored.as_bytes()));
            assert_eq!(read.map(|checkpoint| checkpoint.run).as_deref(), run, "{stored}");
        }
        assert!(Checkpoint::of_run(None).is_none());
    }
}
