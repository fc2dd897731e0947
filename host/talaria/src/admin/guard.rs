//! Who may do what on the admin server.
//!
//! | | with `admin.token` | without, on loopback |
//! |---|---|---|
//! | the console's files, signing in | everybody | everybody |
//! | `/healthz`, `/readyz`, `/metrics` | everybody, as `admin.open` says | everybody |
//! | reading | the token, or a session | everybody |
//! | reading turns | the token, or a session | everybody, if everybody may list them by A2A; else nobody |
//! | cancel, answer, the log filter | the token, or a session | the same, with the header `x-talaria-console: 1` |
//! | `/a2a` | the token, or a session | everybody, unless the A2A server asks for tokens; then nobody |
//! | changing executors | the token, or a session | nobody |
//!
//! So without a token this server shows and allows nothing about a turn that A2A on the same machine does not: where
//! callers have tokens, or the A2A server is reachable from elsewhere, an agent beside the host must not read the turns of
//! all callers here, nor approve its own commands.
//!
//! A session must repeat its second secret in whatever is not a read ([`super::session`]). The header of the fifth row is
//! one that a web page cannot send to another site without asking first, which nothing here answers; it comes on top of
//! [`talaria_listen::Door`], which refuses such pages anyway.

use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, StatusCode};

use super::Admin;
use super::reply::{Reply, failure};
use super::route::{Needs, Route};
use super::session::CSRF;

/// The header of a request that is not a web form.
const CONSOLE: &str = "x-talaria-console";

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// Somebody on this machine, where there is no token.
    Anyone,
    /// The holder of the token, by itself or by a session.
    Operator,
    /// Somebody who asks for what is open to everybody.
    Stranger,
}

impl Who {
    /// The name in the audit log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Operator => "admin",
            Self::Anyone | Self::Stranger => "loopback",
        }
    }
}

impl Admin {
    /// Who sent a request; or the rejection. The cheapest check comes first, and strangers learn nothing.
    pub(super) fn admit(&self, route: &Route<'_>, request: &Parts) -> Result<Who, Box<Reply>> {
        let needs = route.needs(&request.method);
        let is_open = route.as_open().is_some_and(|path| self.open.contains(&path));
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        if !self.auth.is_required() {
            return match needs {
                Needs::Nothing | Needs::Read => Ok(Who::Anyone),
                Needs::Look | Needs::Act if !self.shows_all_tasks() => {
                    let message = "the A2A server does not show everybody all tasks; set `admin.token` to see them here";
                    Err(failure(StatusCode::FORBIDDEN, "NO_TOKEN", message).into())
                }
                Needs::Look => Ok(Who::Anyone),
                Needs::Act if request.headers.get(CONSOLE) == Some(&HeaderValue::from_static("1")) => {
                    Ok(Who::Anyone)
                }
                Needs::Act => {
                    let message = "without `admin.token` this needs the header x-talaria-console: 1";
                    Err(failure(StatusCode::FORBIDDEN, "NO_TOKEN", message).into())
                }
                Needs::Call if self.calls_need_a_token() => {
                    let message =
                        "the A2A server asks its callers for tokens; set `admin.token` to call it from here";
                    Err(failure(StatusCode::FORBIDDEN, "NO_TOKEN", message).into())
                }
                Needs::Call => Ok(Who::Anyone),
                Needs::Change => {
                    let message = "changing executors needs a token: set `admin.token`";
                    Err(failure(StatusCode::FORBIDDEN, "NO_TOKEN", message).into())
                }
            };
        }
        if self.auth.caller(&request.headers).is_some() {
            return Ok(Who::Operator);
        }
        // Signing out is a change that only the session itself may make.
        if needs == Needs::Nothing && request.method != Method::DELETE {
            return Ok(Who::Stranger);
        }
        if let Some(session) = self.sessions.of(&request.headers) {
            if is_read || session.is_repeated(&request.headers) {
                return Ok(Who::Operator);
            }
            let message = format!("a session repeats its `csrf` in the header {CSRF}");
            return Err(failure(StatusCode::FORBIDDEN, "NO_CSRF_TOKEN", &message).into());
        }
        if is_open || needs == Needs::Nothing {
            return Ok(Who::Stranger);
        }
        if request.headers.contains_key(AUTHORIZATION) {
            self.sign_in_refused(request);
        }
        let message = "this server needs the token of `admin.token`: Authorization: Bearer TOKEN";
        let mut reply = failure(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message);
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Err(reply.into())
    }
}
