//! The parameters of an operation, from the members of an object: JSON-RPC's `params`, a body, or a query with what
//! the path says.

use http::HeaderMap;
use serde_json::Value;
use talaria_turns::State;

use crate::dialect::Dialect;
use crate::operation::{GetTask, ListTasks, Operation, Request, Subscribe, Verb};
use crate::read::Fields;
use crate::refusal::{Refusal, Violation};
use crate::version::Version;
use crate::{hook, page};

/// The header with the number of the last event that a caller has.
const LAST_EVENT_ID: &str = "last-event-id";
/// Tasks on one page, where the caller does not say. The protocol's default.
const PAGE_SIZE: usize = 50;
/// The most that one page may hold. The protocol's bound.
const MAX_PAGE_SIZE: usize = 100;

/// Reads a request. `after` is what [`last_event`] found.
pub(crate) fn read(
    dialect: Dialect,
    verb: Verb,
    mut fields: Fields<'_>,
    after: Option<u64>,
) -> Result<Request, Refusal> {
    let tenant = fields.string("tenant")?;
    let operation = match verb {
        Verb::Send => Operation::Send(Box::new(dialect.send_message(fields)?)),
        Verb::Stream => Operation::Stream(Box::new(dialect.send_message(fields)?), after),
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
        Verb::SetHook | Verb::GetHook | Verb::ListHooks | Verb::RemoveHook => {
            hook::operation(dialect, verb, fields)?
        }
    };
    Ok(Request { tenant, operation })
}

/// The number of the last event that the caller has; an empty header is none.
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

fn list(mut fields: Fields<'_>) -> Result<ListTasks, Violation> {
    let page_size = fields.count("pageSize")?.unwrap_or(PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&page_size) {
        return Err(fields.at("pageSize").refuse(format!("must be from 1 to {MAX_PAGE_SIZE}")));
    }
    let after = match fields.string("pageToken")? {
        None => None,
        Some(token) => match page::place(&token) {
            None => return Err(fields.at("pageToken").refuse("must be a nextPageToken of this server")),
            place => place,
        },
    };
    Ok(ListTasks {
        context: fields.id("contextId")?,
        state: state(&mut fields)?,
        since: fields.moment("statusTimestampAfter")?,
        after,
        page_size,
        history_length: fields.count("historyLength")?,
        artifacts: fields.boolean("includeArtifacts")?.unwrap_or(false),
    })
}

/// A state by its name or number; unspecified is none.
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
        None => Err(fields.at("status").refuse("must be the name of a task state, like TASK_STATE_WORKING")),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_last_event_is_one_number_or_none() {
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
        assert_eq!(of(&["1", "2"]), Err("Last-Event-ID".into()), "two are none");
    }
}
