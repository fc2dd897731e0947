//! What the platform answers: its registry, its part of the prompt, notices, and the proxy. The routes of the tools are in
//! `team`.

use serde_json::{Value, json};

use super::delivery::Errand;
use super::{Mood, State, refuse};
use crate::gateway::Recorded;
use crate::reply::Reply;

// === impl State ===

impl State {
    /// How it answers requests for this path.
    pub(super) fn mood_at(&self, path: &str) -> Mood {
        let of_route = self.moods.iter().find(|(part, _)| path.contains(part.as_str()));
        of_route.map_or(self.mood, |(_, mood)| *mood)
    }

    /// Answers a request. What is to be done after that is added to the errands.
    pub(super) fn answer(&mut self, request: &Recorded) -> Reply {
        match self.mood_at(&request.path) {
            Mood::Well | Mood::Mute => {}
            Mood::Refuses(status) => return refuse(status, "in no mood"),
            Mood::Html => return Reply::status(200, "text/html", "<html>a captive portal</html>"),
            Mood::Empty => return Reply::status(200, "application/json", ""),
            Mood::Huge => {
                return Reply::status(200, "application/json", format!("\"{}\"", "x".repeat(10 << 20)));
            }
            Mood::Hangs => return Reply::hang(),
        }
        let allowed = match &self.token {
            None => true,
            Some(token) => request.header("authorization") == Some(&format!("Bearer {token}")),
        };
        if self.hosted.is_empty() && !allowed {
            return refuse(401, "invalid workspace token");
        }
        if !self.hosted.is_empty()
            && let Some(rejection) = self.hosted.rejects(request)
        {
            return rejection;
        }
        if let Some(status) = self.closed.get(&request.path) {
            return refuse(*status, "not here");
        }
        if let Some(reply) = self.team.answer(request, &self.hosted, &mut self.errands) {
            return reply;
        }
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/registry/register") => self.register(request.json()),
            ("POST", "/registry/heartbeat") => self.heartbeat(request.json()),
            ("POST", "/registry/update-card") => self.update_card(&request.json()),
            ("GET", path) if path.ends_with("/peers") => {
                let of = path.trim_start_matches("/registry/").trim_end_matches("/peers");
                let peers = if self.hosted.is_empty() { self.peers.clone() } else { self.hosted.peers(of) };
                Reply::json(&peers)
            }
            ("GET", path) if path.ends_with("/instructions/resolve") => {
                Reply::json(&json!({ "instructions": self.instructions }))
            }
            ("GET", path) if path.ends_with("/shared-context") => Reply::json(&json!([])),
            ("POST", path) if path.ends_with("/notify") => {
                self.notices.push(request.json());
                Reply::json(&json!({ "status": "sent" }))
            }
            ("POST", path) if path.ends_with("/a2a") => {
                let target = path.trim_start_matches("/workspaces/").trim_end_matches("/a2a").to_owned();
                self.sent.push(request.json());
                let Some(caller) = self.hosted.caller(request).map(str::to_owned) else {
                    return Reply::json(&json!({ "result": { "parts": [] } }));
                };
                let (reply, later) = Reply::later();
                self.errands.push(Errand::Proxy { caller, target, body: request.json(), reply });
                later
            }
            _ => refuse(404, "no such route"),
        }
    }

    fn register(&mut self, body: Value) -> Reply {
        let text = |name: &str| body.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !text("id") || !text("url") || !body.pointer("/agent_card/name").is_some_and(Value::is_string) {
            return refuse(400, "id, url and agent_card are required");
        }
        self.registered = true;
        let mut answer = json!({ "status": "registered", "platform_inbound_secret": self.secret });
        let next = format!("workspace-token-{}", self.tokens + 1);
        let token = match (self.hosted.is_empty(), &self.token) {
            (false, _) => self.hosted.register(&body, next),
            (true, None) => {
                self.token = Some(next.clone());
                Some(next)
            }
            (true, Some(_)) => None,
        };
        self.registrations.push(body);
        if let Some(token) = token {
            self.tokens += 1;
            answer.as_object_mut().unwrap().insert("auth_token".into(), json!(token));
        }
        Reply::json(&answer)
    }

    fn update_card(&mut self, body: &Value) -> Reply {
        match (self.registered, body.get("workspace_id"), body.get("agent_card")) {
            (false, ..) => refuse(404, "workspace not found"),
            (true, Some(Value::String(_)), Some(card @ Value::Object(_))) => {
                self.cards.push(card.clone());
                Reply::json(&json!({ "status": "updated" }))
            }
            _ => refuse(400, "workspace_id and agent_card are required"),
        }
    }

    fn heartbeat(&mut self, body: Value) -> Reply {
        let id = body.get("workspace_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_registered = match self.hosted.find(&id) {
            Some(workspace) => workspace.url.is_some(),
            None => self.registered,
        };
        if !is_registered && !body.get("agent_card").is_some_and(Value::is_object) {
            return refuse(404, "workspace not found");
        }
        self.errands.extend(self.hosted.find(&id).map(|_| Errand::Queue(id)));
        self.heartbeats.push(body);
        let (generation, secret) = (self.generation, &self.secret);
        Reply::json(&json!({ "status": "ok", "generation": generation, "platform_inbound_secret": secret }))
    }
}
