//! The gateway's routes, each with its bounds.

use serde_json::{Value, json};
use talaria_guest::{Failure, Request, control, http};
use talaria_upstream::hermes_agent::transcript::is_id;
use talaria_upstream::hermes_agent::{self, KEY, Session, error_status, unreachable};
use talaria_upstream::{PROBE_TIMEOUT_MS, base, bearer, is_success, text};

use crate::place::Place;

/// For a call that the gateway answers from memory.
const CALL_TIMEOUT_MS: u32 = 10_000;
/// For starting a run: the first one after a boot loads the agent.
const SUBMIT_TIMEOUT_MS: u32 = 30_000;
/// For a stop: the caller of a cancel waits for it, and the host gives it five seconds.
const STOP_TIMEOUT_MS: u32 = 4_000;
/// The largest status: its output is a reply.
const STATUS_BYTES: u32 = 8 << 20;

/// A gateway.
pub(crate) struct Gateway {
    base: String,
}

impl Gateway {
    pub(crate) fn new(base_url: &str) -> Self {
        Self { base: base(base_url).to_owned() }
    }

    /// Where it is.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    fn request(&self, method: &str, path: &str) -> Request {
        bearer(Request::new(method, format!("{}{path}", self.base)), KEY).timeout_ms(CALL_TIMEOUT_MS)
    }

    /// What the gateway says of itself.
    pub(crate) fn get(&self, path: &str) -> Result<http::Response, http::Error> {
        self.request("GET", path).timeout_ms(PROBE_TIMEOUT_MS).fetch()
    }

    /// Starts a run. While the gateway has no place for it, waits as long as the gateway says and the turn's time allows.
    pub(crate) fn submit(&self, body: &[u8], session: &Session, streaming: bool) -> Result<String, Failure> {
        let mut place = Place::new(streaming);
        loop {
            let request =
                self.request("POST", "/runs").body("application/json", body).timeout_ms(SUBMIT_TIMEOUT_MS);
            let response = session.within(request).fetch().map_err(|error| unreachable(&error))?;
            if is_success(response.status) {
                let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
                let id = text(&answer, "/run_id").filter(|id| is_id(id));
                return id
                    .ok_or_else(|| hermes_agent::error("the gateway started a run and did not say which"));
            }
            if !place.wait(response.status, &response.headers)? {
                return Err(error_status(response.status, &response.body));
            }
        }
    }

    /// The run's events. They are given once.
    pub(crate) fn events(&self, run: &str) -> Result<http::Exchange, http::Error> {
        self.request("GET", &format!("/runs/{run}/events")).timeout_ms(control::remaining_ms()).open()
    }

    /// How the run stands.
    pub(crate) fn status(&self, run: &str) -> Result<http::Response, http::Error> {
        self.request("GET", &format!("/runs/{run}")).max_bytes(STATUS_BYTES).fetch()
    }

    /// Decides what the run waits for.
    pub(crate) fn approve(&self, run: &str, choice: &str) -> Result<http::Response, http::Error> {
        self.request("POST", &format!("/runs/{run}/approval")).json(&json!({ "choice": choice })).fetch()
    }

    /// Stops the run. One that is not there is over already.
    pub(crate) fn stop(&self, run: &str) -> Result<(), Failure> {
        let request = self.request("POST", &format!("/runs/{run}/stop")).timeout_ms(STOP_TIMEOUT_MS);
        let response = request.fetch().map_err(|error| unreachable(&error))?;
        match response.status {
            200..300 | 404 | 409 => Ok(()),
            status => Err(error_status(status, &response.body)),
        }
    }
}
