//! An HTTP+JSON request: `METHOD PATH?QUERY`, headers, an empty line, the body.
#![no_main]

use http::{Request, Uri};
use libfuzzer_sys::fuzz_target;
use talaria_a2a::fuzz::{self, Dialect, Operation, Rest};
use talaria_fuzz::{first_line, head_and_body, headers, wire};

fuzz_target!(|data: &[u8]| {
    let (head, body) = head_and_body(data);
    let (line, lines) = first_line(head);
    let Some(space) = line.iter().position(|byte| *byte == b' ') else { return };
    let Ok(uri) = Uri::try_from(&line[space + 1..]) else { return };
    let Ok(mut request) = Request::builder().method(&line[..space]).uri(uri.clone()).body(body) else {
        return;
    };
    *request.headers_mut() = headers(lines);
    let post = request.method() == http::Method::POST;

    let Some((rest, operation)) = fuzz::rest(request) else { return };
    check_route(&rest);
    let task = match operation {
        None => return,
        Some(Err(error)) => {
            let code = error["error"]["code"].as_u64().expect("a status");
            assert!((400..500).contains(&code), "bad input is not our fault: {error}");
            assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
            wire::one_document(&error.to_string());
            return;
        }
        Some(Ok(Operation::Send(send) | Operation::Stream(send, _))) => {
            assert!(post, "only a POST sends");
            return wire::check_message(rest.dialect, &send.addressed);
        }
        Some(Ok(Operation::List(list))) => {
            if let Some(place) = list.after {
                let token = fuzz::encode_page_token(&place);
                assert_eq!(fuzz::decode_page_token(&token), Some(place));
            }
            return;
        }
        Some(Ok(Operation::ExtendedCard(_))) => return,
        Some(Ok(Operation::Get(get))) => get.id,
        Some(Ok(Operation::Subscribe(subscribe))) => subscribe.id,
        Some(Ok(
            Operation::Cancel(task)
            | Operation::CreatePushConfig(task, _)
            | Operation::GetPushConfig(task, _)
            | Operation::ListPushConfigs(task)
            | Operation::DeletePushConfig(task, _),
        )) => task,
    };
    assert_eq!(rest.task.as_deref(), Some(task.as_str()), "the path names the task");
});

/// The same path with every id percent-encoded has the same route.
fn check_route(rest: &Rest) {
    let Rest { dialect, tenant, task, push_config, .. } = rest;
    assert!([tenant, task, push_config].into_iter().flatten().all(|id| !id.is_empty()));
    let task = task.as_deref().map(encoded).unwrap_or_default();
    let resource = match (rest.name(), dialect) {
        ("task", _) => format!("tasks/{task}"),
        ("task:cancel", _) => format!("tasks/{task}:cancel"),
        ("task:subscribe", _) => format!("tasks/{task}:subscribe"),
        ("pushNotificationConfigs" | "pushNotificationConfig", _) => {
            let id = push_config.as_deref().map(|id| format!("/{}", encoded(id))).unwrap_or_default();
            format!("tasks/{task}/pushNotificationConfigs{id}")
        }
        ("extendedAgentCard", Dialect::V03Rest) => "card".into(),
        (name, _) => name.to_owned(),
    };
    let (prefix, requested) = match (dialect, tenant) {
        (Dialect::V1, None) => (String::new(), "1.0"),
        (Dialect::V1, Some(tenant)) => (format!("/{}", encoded(tenant)), "1.0"),
        (_, tenant) => {
            assert_eq!(*tenant, None, "0.3 has no tenants");
            ("/v1".into(), "0.3")
        }
    };
    let path = format!("{prefix}/{resource}");
    assert_eq!(fuzz::rest_route(&path, Some(requested)).as_ref(), Some(rest), "{path}");
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
