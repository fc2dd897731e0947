//! Decodes push notification configurations.

use talaria_turns::{Authentication, Credential, PushConfig, PushConfigId, PushContent, StreamAs, TaskId};

use crate::dialect::Dialect;
use crate::json_fields::Fields;
use crate::operation::{Operation, Verb};
use crate::rejection::Violation;

/// Bytes of a URL, which is as long as servers and proxies accept.
pub(super) const MAX_URL: usize = 2048;
/// Bytes of a token or of credentials, enough for a long JWT.
const MAX_SECRET: usize = 8192;
/// Bytes of the name of an authentication scheme.
const MAX_SCHEME: usize = 64;

/// Decodes the parameters of an operation on configurations. The ids in a path are bound to `taskId` and `id`.
pub(crate) fn operation(
    dialect: Dialect,
    verb: Verb,
    mut fields: Fields<'_>,
) -> Result<Operation, Violation> {
    // 0.3 over JSON-RPC calls the task `id`, and the configuration `pushNotificationConfigId`.
    let (task, config) = match dialect {
        Dialect::V03 if verb != Verb::CreatePushConfig => ("id", "pushNotificationConfigId"),
        _ => ("taskId", "id"),
    };
    let task = fields.required_id(task)?;
    Ok(match verb {
        Verb::GetPushConfig if dialect == Dialect::V03 => Operation::GetPushConfig(task, fields.id(config)?),
        Verb::GetPushConfig => Operation::GetPushConfig(task, Some(fields.required_id(config)?)),
        Verb::DeletePushConfig => Operation::DeletePushConfig(task, fields.required_id(config)?),
        Verb::CreatePushConfig => {
            let config = match dialect {
                Dialect::V1 => flat(fields)?,
                Dialect::V03 => nested(fields, &task)?,
                Dialect::V03Rest => resource(fields, &task)?,
            };
            Operation::CreatePushConfig(task, Box::new(config))
        }
        _ => {
            // All configurations fit on one page.
            if fields.string("pageToken")?.is_some() {
                return Err(fields.at("pageToken").violation("must be a nextPageToken of this server"));
            }
            fields.count("pageSize")?;
            Operation::ListPushConfigs(task)
        }
    })
}

/// Decodes a configuration of 1.0, which may also come with a message.
pub(crate) fn flat(mut fields: Fields<'_>) -> Result<PushConfig, Violation> {
    let id = fields.id("id")?.unwrap_or_else(PushConfigId::fresh);
    let authentication = fields.object("authentication", |mut fields| {
        let scheme = fields.string("scheme")?.ok_or_else(|| fields.at("scheme").violation("is required"))?;
        authentication(fields, scheme)
    })?;
    finish(fields, id, PushContent::Events, authentication)
}

/// Decodes a configuration of 0.3, which may also come with a message.
pub(crate) fn v03(mut fields: Fields<'_>) -> Result<PushConfig, Violation> {
    let id = fields.id("id")?.unwrap_or_else(PushConfigId::fresh);
    let authentication = fields.object("authentication", |mut fields| {
        // The receiver accepts any of them and prefers the first.
        let scheme = fields.strings("schemes")?.into_iter().next().unwrap_or_else(|| "Bearer".into());
        authentication(fields, scheme)
    })?;
    finish(fields, id, PushContent::Task, authentication)
}

/// Decodes the parameters of 0.3's `set`. Without an id it is the task's only configuration, as in the SDKs.
fn nested(mut fields: Fields<'_>, task: &TaskId) -> Result<PushConfig, Violation> {
    let mut has_id = false;
    let config = fields.object("pushNotificationConfig", |inner| {
        has_id = inner.is_written("id");
        v03(inner)
    })?;
    let mut config = config.ok_or_else(|| fields.at("pushNotificationConfig").violation("is required"))?;
    if !has_id {
        config.id = task.as_str().parse().unwrap_or(config.id);
    }
    Ok(config)
}

/// Decodes the body of 0.3's `set` over HTTP+JSON: the resource, or the whole request around it, as the SDKs send it.
fn resource(mut fields: Fields<'_>, task: &TaskId) -> Result<PushConfig, Violation> {
    let id: Option<PushConfigId> = fields.id("configId")?;
    let wrapped = fields.object("config", |inner| nested(inner, task))?;
    let mut config = match wrapped {
        Some(config) => config,
        None if fields.is_written("url") => v03(fields)?,
        None => nested(fields, task)?,
    };
    if let Some(id) = id {
        config.id = id;
    }
    Ok(config)
}

fn authentication(mut fields: Fields<'_>, scheme: String) -> Result<Authentication, Violation> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if scheme.len() > MAX_SCHEME || !scheme.bytes().all(is_token) {
        return Err(fields.at("scheme").violation("must be the name of an HTTP authentication scheme"));
    }
    Ok(Authentication { scheme, credentials: secret(&mut fields, "credentials")? })
}

fn finish(
    mut fields: Fields<'_>,
    id: PushConfigId,
    content: PushContent,
    authentication: Option<Authentication>,
) -> Result<PushConfig, Violation> {
    let url = fields.string("url")?.ok_or_else(|| fields.at("url").violation("is required"))?;
    if url.len() > MAX_URL {
        return Err(fields.at("url").violation(format!("must not be longer than {MAX_URL} bytes")));
    }
    let token = secret(&mut fields, "token")?;
    // The form of streamed answers depends on the caller, so the operation sets it.
    Ok(PushConfig { id, url, content, stream: StreamAs::default(), token, authentication })
}

/// Decodes a secret that becomes part of a header.
fn secret(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<Credential>, Violation> {
    let Some(text) = fields.string(name)? else { return Ok(None) };
    if text.len() > MAX_SECRET || !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        let wanted =
            format!("must be at most {MAX_SECRET} visible ASCII characters, as it goes into a header");
        return Err(fields.at(name).violation(wanted));
    }
    Ok(Some(Credential::new(text)))
}
