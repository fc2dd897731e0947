//! Push notifications: what a receiver gets about a task.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use secrecy::SecretString;
use talaria_turns::{Authentication, PushConfig, PushNotification, State};

use crate::dialect::{Dialect, InDialect};
use crate::operation::{Answer, View};
use crate::update_stream::{StreamEvent, StreamItem, TaskRef};
use crate::version;

/// One push notification, ready to be sent.
#[derive(Debug)]
pub struct Notification {
    /// The headers; some hold secrets.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// The body.
    pub body: Bytes,
}

/// Where the Python and JavaScript SDKs look for the token.
const X_TOKEN: HeaderName = HeaderName::from_static("x-a2a-notification-token");
/// Where the Go and Rust SDKs look for the token.
const TOKEN: HeaderName = HeaderName::from_static("a2a-notification-token");

// === impl Notification ===

impl Notification {
    /// Encodes `news` for the receiver of this configuration.
    ///
    /// # Errors
    /// If it cannot be encoded as JSON, which is a bug.
    pub fn new(config: &PushConfig, news: &PushNotification) -> Result<Self, serde_json::Error> {
        let (media_type, version, body) = match news {
            PushNotification::Event(task, entry) => {
                let task_ref = TaskRef { task: task.id.clone(), context: task.context.clone() };
                let event = Arc::clone(&entry.event);
                // A note has no state of its own, but only a working turn emits one.
                let state = event.state().unwrap_or(State::Working);
                let (task_ref, sequence, form) = (Arc::new(task_ref), entry.sequence, config.stream);
                let event = StreamEvent { task_ref, event, state, last: false, sequence, form };
                let item = StreamItem::Event(event);
                ("application/a2a+json", "1.0", serde_json::to_vec(&InDialect(Dialect::V1, &item))?)
            }
            PushNotification::Task(task) => {
                let answer = Answer::Task(View::new(Arc::clone(task), None));
                ("application/json", "0.3", serde_json::to_vec(&InDialect(Dialect::V03, &answer))?)
            }
        };
        let mut headers = vec![(CONTENT_TYPE, media_type.into()), (version::HEADER, version.into())];
        if let Some(Authentication { scheme, credentials: Some(credentials) }) = &config.authentication {
            headers.push((AUTHORIZATION, format!("{scheme} {}", credentials.expose()).into()));
        }
        if let Some(token) = &config.token {
            headers.extend([X_TOKEN, TOKEN].map(|name| (name, token.expose().into())));
        }
        Ok(Self { headers, body: Bytes::from(body) })
    }
}
