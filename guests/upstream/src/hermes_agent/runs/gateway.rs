//! The gateway's routes for runs, each with its bounds.

use serde_json::{Value, json};
use talaria_guest::{Failure, Request, control, http};

use super::Backoff;
use crate::hermes_agent::transcript::is_id;
use crate::hermes_agent::{self, KEY, Session, error_status, unreachable};
use crate::{PROBE_TIMEOUT_MS, base, bearer, is_success, text};

/// For a call that the gateway answers from memory.
const CALL_TIMEOUT_MS: u32 = 10_000;
/// For starting a run: the first one after a boot loads the agent.
const SUBMIT_TIMEOUT_MS: u32 = 30_000;
/// For a stop: the caller of a cancel waits for it, and the host allows it five seconds.
const STOP_TIMEOUT_MS: u32 = 4_000;
/// The largest status; its output is a whole reply.
const STATUS_BYTES: u32 = 8 << 20;

/// A gateway with runs.
pub struct Gateway {
    base: String,
}

impl Gateway {
    /// The gateway whose API is at this URL.
    #[must_use]
    pub fn new(base_url: &str) -> Self {
        Self { base: base(base_url).to_owned() }
    }

    /// The URL of its API, without slashes at the end.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    fn request(&self, method: &str, path: &str) -> Request {
        bearer(Request::new(method, format!("{}{path}", self.base)), KEY).timeout_ms(CALL_TIMEOUT_MS)
    }

    /// Reads what the gateway says about itself.
    pub(super) fn get(&self, path: &str) -> Result<http::Response, http::Error> {
        self.request("GET", path).timeout_ms(PROBE_TIMEOUT_MS).fetch()
    }

    /// Starts a run and returns its id. While the gateway is busy, waits for as long as it asks and the turn's time
    /// allows.
    pub(super) fn submit(
        &self,
        body: &[u8],
        scope: Option<&Session>,
        streaming: bool,
    ) -> Result<String, Failure> {
        let mut backoff = Backoff::new(streaming);
        loop {
            let request =
                self.request("POST", "/runs").body("application/json", body).timeout_ms(SUBMIT_TIMEOUT_MS);
            let request = match scope {
                Some(session) => session.within(request),
                None => request,
            };
            let response = request.fetch().map_err(|error| unreachable(&error))?;
            if is_success(response.status) {
                let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
                let id = text(&answer, "/run_id").filter(|id| is_id(id));
                return id
                    .ok_or_else(|| hermes_agent::error("the gateway started a run and did not say which"));
            }
            if !backoff.wait(response.status, &response.headers)? {
                return Err(error_status(response.status, &response.body));
            }
        }
    }

    /// Opens the run's events, which the gateway gives once.
    pub(super) fn events(&self, run: &str) -> Result<http::Exchange, http::Error> {
        self.request("GET", &format!("/runs/{run}/events")).timeout_ms(control::remaining_ms()).open()
    }

    /// Reads the run's status.
    pub(super) fn status(&self, run: &str) -> Result<http::Response, http::Error> {
        self.request("GET", &format!("/runs/{run}")).max_bytes(STATUS_BYTES).fetch()
    }

    /// Sends the decision that the run waits for.
    pub(super) fn approve(&self, run: &str, choice: &str) -> Result<http::Response, http::Error> {
        self.request("POST", &format!("/runs/{run}/approval")).json(&json!({ "choice": choice })).fetch()
    }

    /// Stops the run of a checkpoint. A run that the gateway does not know is over already.
    ///
    /// # Errors
    /// A [`Failure`] for the operator's log.
    pub fn stop(&self, checkpoint: &super::Checkpoint) -> Result<(), Failure> {
        let path = format!("/runs/{}/stop", checkpoint.run);
        let request = self.request("POST", &path).timeout_ms(STOP_TIMEOUT_MS);
        let response = request.fetch().map_err(|error| unreachable(&error))?;
        match response.status {
            200..300 | 404 | 409 => Ok(()),
            status => Err(error_status(status, &response.body)),
        }
    }
}
