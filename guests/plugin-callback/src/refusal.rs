//! Replies that say that there is no answer.
//!
//! If a turn fails, the gateway writes a sentence about it in place of the agent's reply, with nothing that marks it. These
//! are its sentences, read from hermes-agent 0.19 (`gateway/run.py`) and observed (`docs/hermes.md`). A reply counts as one
//! of them if it begins with such a sentence and is as short as they are: an agent's answer that quotes one is longer, or
//! begins otherwise. A sentence that is not known stays an answer, as it always was.

use talaria_guest::{Failure, FailureKind};

/// The characters of the longest such reply. The gateway itself takes longer ones for prose.
const LONGEST: usize = 400;

/// How the replies begin, and whether another attempt may succeed.
const BEGINNINGS: [(&str, bool); 10] = [
    ("⚠️ Provider authentication failed", false),
    ("⚠️ The model provider rejected the request.", false),
    ("⚠️ The model provider failed after retries.", true),
    ("⏱️ The model provider is rate-limiting requests.", true),
    ("⚠️ The model returned no response after processing tool results.", true),
    ("⚠️ Session too large for the model's context window.", false),
    ("⚠️ Processing stopped: ", true),
    ("⚠️ Processing completed but no response was generated.", true),
    ("⚠️ Your message was interrupted before processing started", true),
    ("⚠️ Your message wasn't processed", true),
];

/// The failure that a reply reports. The caller reads the gateway's own words.
pub(crate) fn of(reply: &str) -> Option<Failure> {
    let said = reply.trim();
    let (_, retryable) = BEGINNINGS.iter().find(|(beginning, _)| said.starts_with(beginning))?;
    (said.chars().count() <= LONGEST)
        .then(|| Failure { retryable: *retryable, ..Failure::new(FailureKind::Upstream, said) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_own_sentences_are_failures_and_answers_are_not() {
        for (reply, retryable) in [
            (
                "⚠️ Provider authentication failed. Check the configured credentials; raw provider details are in the gateway logs.",
                Some(false),
            ),
            ("⚠️ Provider authentication failed: quota exhausted (429)\n", Some(false)),
            (
                "⏱️ The model provider is rate-limiting requests. Please wait a moment and try again.",
                Some(true),
            ),
            (
                "⚠️ The model provider failed after retries. I kept raw provider details out of chat; check gateway logs for diagnostics.",
                Some(true),
            ),
            ("⚠️ Careful: this deletes the table.", None),
            ("It says \"⚠️ Provider authentication failed\".", None),
            ("Provider authentication failed, says the log.", None),
            ("", None),
        ] {
            assert_eq!(of(reply).map(|failure| failure.retryable), retryable, "{reply}");
        }
        let essay = format!("⚠️ Provider authentication failed. {}", "x".repeat(LONGEST));
        assert!(of(&essay).is_none(), "an answer that begins so is longer");
    }
}
