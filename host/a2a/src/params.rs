//! Decodes the parameters of an operation from the members of an object: JSON-RPC's `params`, a body, or a query together
//! with the path.

use http::HeaderMap;
use serde_json::Value;
use talaria_turns::State;

use crate::capabilities::Capabilities;
use crate::dialect::Dialect;
use crate::json_fields::Fields;
use crate::operation::{GetTask, ListTasks, Operation, Request, SendMessage, Subscribe, Verb};
use crate::rejection::{Rejection, Violation};
use crate::version::Version;
use crate::{page_token, push};

/// The header with the number of the last event that the caller has.
const LAST_EVENT_ID: &str = "last-event-id";
/// Tasks per page unless the caller says otherwise; the protocol's default.
const PAGE_SIZE: usize = 50;
/// The most tasks per page; the protocol's limit.
const MAX_PAGE_SIZE: usize = 100;

/// Decodes a request. `after` comes from [`last_event`].
pub(crate) fn read(
    capabilities: &Capabilities,
    dialect: Dialect,
    verb: Verb,
    mut fields: Fields<'_>,
    after: Option<u64>,
) -> Result<Request, Rejection> {
    let tenant = fields.string("tenant")?;
    let operation = match verb {
        Verb::Send => Operation::Send(Box::new(send(capabilities, dialect, fields)?)),
        Verb::Stream => Operation::Stream(Box::new(send(capabilities, dialect, fields)?), after),
        Verb::Get => Operation::Get(GetTask {
            id: fields.required_id("id")?,
            history_length: fields.count("historyLength")?,
        }),
        Verb::List => Operation::List(Box::new(list(fields)?)),
        Verb::Cancel => Operation::Cancel(fields.required_id("id")?),
        Verb::Subscribe => Operation::Subscribe(Subscribe {
            id: fields.required_id("id")?,
            after,
            shows_ended: dialect.version() == Version::V03,
        }),
        Verb::ExtendedCard => Operation::ExtendedCard(dialect.version()),
        Verb::CreatePushConfig | Verb::GetPushConfig | Verb::ListPushConfigs | Verb::DeletePushConfig => {
            push::operation(dialect, verb, fields)?
        }
    };
    Ok(Request { tenant, operation })
}

/// Reads the number of the last event that the caller has; an empty header counts as absent.
pub(crate) fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Violation> {
    let mut values = headers.get_all(LAST_EVENT_ID).iter();
    let (value, more) = (values.next(), values.next());
    let Some(value) =
        value.map(|value| value.to_str().unwrap_or("?").trim()).filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    let number = value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok()).flatten();
    match (number, more) {
        (Some(number), None) => Ok(Some(number)),
        _ => Err(Violation {
            field: "Last-Event-ID".into(),
            description: "must be one number, as it was in an id field of the stream".into(),
        }),
    }
}

fn send(capabilities: &Capabilities, dialect: Dialect, fields: Fields<'_>) -> Result<SendMessage, Rejection> {
    let send = dialect.send_message(fields)?;
    if send.configuration.push.is_some() {
        capabilities.require_push()?;
    }
    Ok(send)
}

fn list(mut fields: Fields<'_>) -> Result<ListTasks, Violation> {
    let page_size = fields.count("pageSize")?.unwrap_or(PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&page_size) {
        return Err(fields.at("pageSize").violation(format!("must be from 1 to {MAX_PAGE_SIZE}")));
    }
    let after = match fields.string("pageToken")? {
        None => None,
        Some(token) => match page_token::decode(&token) {
            None => return Err(fields.at("pageToken").violation("must be a nextPageToken of this server")),
            place => place,
        },
    };
    Ok(ListTasks {
        context: fields.id("contextId")?,
        state: state(&mut fields)?,
        since: fields.timestamp("statusTimestampAfter")?,
        after,
        page_size,
        history_length: fields.count("historyLength")?,
        artifacts: fields.boolean("includeArtifacts")?.unwrap_or(false),
    })
}

/// Reads a state by its name or number; unspecified counts as absent.
fn state(fields: &mut Fields<'_>) -> Result<Option<State>, Violation> {
    const STATES: [(&str, State); 8] = [
        ("TASK_STATE_SUBMITTED", State::Submitted),
        ("TASK_STATE_WORKING", State::Working),
        ("TASK_STATE_COMPLETED", State::Completed),
        ("TASK_STATE_FAILED", State::Failed),
        ("TASK_STATE_CANCELED", State::Canceled),
        ("TASK_STATE_INPUT_REQUIRED", State::InputRequired),
        ("TASK_STATE_REJECTED", State::Rejected),
        ("TASK_STATE_AUTH_REQUIRED", State::AuthRequired),
    ];
    let name = match fields.any("status") {
        None => return Ok(None),
        Some(Value::String(name)) => name,
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => return Err(fields.at("status").wrong("the name of a task state", &other)),
    };
    if matches!(&*name, "" | "0" | "TASK_STATE_UNSPECIFIED") {
        return Ok(None);
    }
    let found = STATES.iter().enumerate().find(|(at, known)| known.0 == name || (at + 1).to_string() == name);
    match found {
        Some((_, (_, state))) => Ok(Some(*state)),
        None => {
            Err(fields.at("status").violation("must be the name of a task state, like TASK_STATE_WORKING"))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_last_event_is_a_single_number_or_absent() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(LAST_EVENT_ID, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            last_event(&headers).map_err(|violation| violation.field)
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[""]), Ok(None));
        assert_eq!(of(&[" 7 "]), Ok(Some(7)));
        assert_eq!(of(&["0"]), Ok(Some(0)));
        for bad in ["-1", "+1", "1.0", "abc", "ü", "99999999999999999999999", "1,2"] {
            assert_eq!(of(&[bad]), Err("Last-Event-ID".into()), "{bad}");
        }
        assert_eq!(of(&["1", "2"]), Err("Last-Event-ID".into()), "two headers contradict each other");
    }
}
