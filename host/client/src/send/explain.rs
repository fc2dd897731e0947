//! Error messages of `talaria send`: what went wrong, and which flag or step helps.

use crate::answer::TurnStatus;
use crate::error::ClientError;

/// Describes an error together with the flag that helps, if one does.
pub(super) fn explain(error: &ClientError) -> String {
    match error {
        ClientError::NoCommonInterface { offered } => {
            format!("the agent offers {offered} only; `talaria send` speaks A2A 1.0 and 0.3 over JSON-RPC")
        }
        ClientError::VersionNotOffered { wanted, newest } => {
            let (wanted, newest) = (wanted.as_str(), newest.as_str());
            format!("the agent does not offer A2A {wanted}; leave out --protocol to use {newest}")
        }
        ClientError::NoStreaming => {
            format!("{error}; leave out --stream, the reply comes in one piece")
        }
        ClientError::Status { url, status, with_token, excerpt } => {
            let fix = match (status, with_token) {
                (401, false) => "; it wants a token, give its environment variable with --token-env NAME",
                (401 | 403, true) => "; it does not accept the token",
                (429 | 503, _) => "; it is busy, try again later",
                (300..=399, _) => "; give the address that it redirects to",
                _ => "",
            };
            format!("{url} answered with HTTP {status}{fix}{excerpt}")
        }
        ClientError::TimedOut { .. } => format!("{error}, --timeout waits longer"),
        ClientError::Rejected { code, .. } => format!("{error}{}", rejection_hint(*code)),
        _ => error.to_string(),
    }
}

/// The way out of an A2A error, if there is one.
fn rejection_hint(code: i64) -> &'static str {
    match code {
        -32001 => "; give the id of a task of yours, or leave out --task",
        -32004 => {
            "; a task that is over takes no message: leave out --task and keep --context; \
             an agent that does not stream takes none with --stream"
        }
        -32008 => "; the agent requires a protocol extension that `talaria send` does not know",
        -32009 | -32601 => "; try the other version with --protocol",
        _ => "",
    }
}

/// What the caller can do after a turn, unless it is obvious.
#[allow(unreachable_pub, reason = "public to the fuzz targets only")]
pub fn next_step(status: &TurnStatus, url: &str) -> Option<String> {
    let task = status.task.as_deref()?;
    match status.state.as_deref()? {
        "input-required" => {
            Some(format!("the agent asks for more; answer with: talaria send {url} TEXT --task {task}"))
        }
        "auth-required" => Some("the agent waits until you have authenticated where it says".into()),
        "submitted" | "working" => {
            Some(format!("the agent is still at work; task {task} has the answer later"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_how_to_answer_a_question() {
        let status =
            |state: &str| TurnStatus { state: Some(state.into()), task: Some("t".into()), context: None };
        assert_eq!(
            next_step(&status("input-required"), "http://a").as_deref(),
            Some("the agent asks for more; answer with: talaria send http://a TEXT --task t")
        );
        assert_eq!(next_step(&status("failed"), "http://a"), None);
    }
}
