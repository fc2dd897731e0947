//! The likely cause of a gateway's failure, found by phrases in its log, with the fix.

/// A likely cause: phrases in the log, what they mean, and the fix.
struct Cause {
    phrases: &'static [&'static str],
    means: &'static str,
    fix: &'static str,
}

/// The first that matches counts, so the specific ones come first. Phrases are in lower case.
const CAUSES: [Cause; 12] = [
    Cause {
        phrases: &["another gateway instance", "already running"],
        means: "an older gateway has not ended",
        fix: "wait for it, or end it; its lock is in the gateway's home",
    },
    Cause {
        phrases: &["address already in use", "errno 98", "port is already in use", "already in use"],
        means: "its port is taken",
        fix: "stop the process that listens there, or set `gateway.port`",
    },
    Cause {
        phrases: &[
            "no module named 'aiohttp'",
            "aiohttp not installed",
            "aiohttp is required",
            "requires aiohttp",
        ],
        means: "aiohttp is missing, without which there is no API server",
        fix: "pip install aiohttp into the gateway's environment",
    },
    Cause {
        phrases: &["api_server_key", "placeholder", "refusing to start: api"],
        means: "the API server does not take its key",
        fix: "leave API_SERVER_KEY unset, so that one is made, or give one of at least 16 characters that is not a placeholder",
    },
    Cause {
        phrases: &["missing authentication header", "openai-codex"],
        means: "OPENAI_API_KEY was routed to openai-codex, which takes no keys",
        fix: "set HERMES_INFERENCE_PROVIDER (openrouter, or custom with HERMES_CUSTOM_BASE_URL)",
    },
    Cause {
        phrases: &["no llm provider configured", "no inference provider", "no provider configured"],
        means: "no model provider is configured",
        fix: "set a provider's key (OPENROUTER_API_KEY, ANTHROPIC_API_KEY, …) in this process's environment",
    },
    Cause {
        phrases: &["permission denied", "read-only file system", "errno 13", "errno 30"],
        means: "it may not write to its home",
        fix: "give the folder `gateway.home` to the user `gateway.user`",
    },
    Cause {
        phrases: &["no space left on device", "disk full", "database or disk is full"],
        means: "the disk is full",
        fix: "make room on the volume of the gateway's home",
    },
    Cause {
        phrases: &["yaml.scanner", "yaml.parser", "error parsing config", "failed to parse config"],
        means: "its config.yaml cannot be read",
        fix: "correct config.yaml in the gateway's home; config.yaml.before-talaria is what was there first",
    },
    Cause {
        phrases: &["requires python", "requires a different python", "unsupported python"],
        means: "the Python version does not fit",
        fix: "run it with Python 3.11 to 3.13",
    },
    Cause {
        phrases: &["modulenotfounderror", "importerror"],
        means: "its installation is incomplete",
        fix: "install hermes-agent again",
    },
    Cause {
        phrases: &["killed", "out of memory", "memoryerror"],
        means: "it ran out of memory",
        fix: "give the container more memory",
    },
];

/// The likely cause of a failure whose log ends like this, in one sentence with the fix.
pub(super) fn likely_cause(log: &str) -> Option<String> {
    let log = log.to_lowercase();
    let cause = CAUSES.iter().find(|cause| cause.phrases.iter().any(|phrase| log.contains(phrase)))?;
    Some(format!("{}; {}", cause.means, cause.fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_phrases_name_the_cause() {
        for (log, means) in [
            ("OSError: [Errno 98] error while attempting to bind", "its port is taken"),
            ("ERROR Another gateway instance is already running (PID 7)", "an older gateway"),
            ("Refusing to start: API_SERVER_KEY is required", "does not take its key"),
            ("401 - Missing Authentication header", "openai-codex"),
            ("No LLM provider configured", "no model provider"),
            ("ModuleNotFoundError: No module named 'aiohttp'", "aiohttp is missing"),
            ("PermissionError: [Errno 13] Permission denied: '/home'", "may not write"),
        ] {
            let said = likely_cause(log).unwrap();
            assert!(said.contains(means) && said.contains("; "), "{log}: {said}");
        }
        assert_eq!(likely_cause("INFO all is well"), None);
    }
}
