//! `/session`: signs in and out, and says whether that is needed.

use http::header::{HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use talaria_budget::Budget;
use talaria_executors::What;
use talaria_listen::Peer;
use tracing::warn;

use super::executors::Upload;
use super::reply::{Reply, failure, invalid, ok, read_json, respond};
use super::{Admin, Host};

/// After how many wrong tokens of a minute the audit log has one more line.
const NOTED: u32 = 10;

/// The body of a sign-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

impl Admin {
    pub(super) async fn session(&self, host: Option<&Host>, request: &Parts, body: impl Upload) -> Reply {
        let set_cookie = |mut reply: Reply, cookie: &str| {
            if let Ok(cookie) = HeaderValue::try_from(cookie) {
                reply.headers_mut().insert(SET_COOKIE, cookie);
            }
            reply
        };
        match request.method {
            Method::POST => {}
            Method::DELETE => {
                // A session repeats its second secret here too, or another page could sign the operator out.
                let reply = ok(&json!({ "signed_in": false }));
                return set_cookie(reply, &self.sessions.close(&request.headers));
            }
            _ => {
                let session = self.sessions.of(&request.headers);
                return ok(&json!({
                    "needed": self.auth.is_required(),
                    "signed_in": session.is_some(),
                    "csrf": session.map(|session| session.csrf),
                }));
            }
        }
        if !self.auth.is_required() {
            return invalid("there is nothing to sign in to: `admin.token` is not set");
        }
        if !self.sessions.may_try() {
            let message = "too many wrong tokens; try again in a minute";
            return failure(StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", message);
        }
        let budget = host.map_or_else(Budget::unlimited, |host| host.turns.budget().clone());
        let SignIn { token } = match read_json(request, body, &budget).await {
            Ok(sign_in) => sign_in,
            Err(reply) => return reply,
        };
        let bearer = HeaderValue::try_from(format!("Bearer {token}"));
        let headers: HeaderMap =
            bearer.into_iter().map(|bearer| (http::header::AUTHORIZATION, bearer)).collect();
        if self.auth.caller(&headers).is_none() {
            self.sign_in_refused(request);
            return failure(
                StatusCode::UNAUTHORIZED,
                "UNAUTHENTICATED",
                "that is not the token of `admin.token`",
            );
        }
        let (session, cookie) = self.sessions.open();
        set_cookie(respond(StatusCode::CREATED, &json!({ "signed_in": true, "csrf": session.csrf })), &cookie)
    }

    /// Notes a wrong token in the log and in the audit log; of many in a minute, some.
    pub(super) fn sign_in_refused(&self, request: &Parts) {
        let wrong = self.sessions.was_wrong();
        if wrong != 1 && !wrong.is_multiple_of(NOTED) {
            return;
        }
        let peer = request.extensions.get::<Peer>().map(|peer| peer.0.ip().to_string());
        let peer = peer.unwrap_or_else(|| "unknown".to_owned());
        warn!(peer, in_this_minute = wrong, "sign-in to the admin server refused: wrong token");
        let Some(host) = self.host.get() else { return };
        let executors = std::sync::Arc::clone(&host.executors);
        let reason = format!("wrong token, {wrong} in this minute");
        host.tracker.spawn(async move {
            executors.note(&peer, What::SignInRefused, None, Some(&reason)).await;
        });
    }
}
