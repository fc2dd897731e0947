//! An HTTP+JSON request: `METHOD PATH?QUERY`, headers, an empty line, the body.
#![no_main]

use http::{Request, Uri};
use libfuzzer_sys::fuzz_target;
use talaria_a2a::fuzz::{self, Asked, Dialect, Routed};
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

    let Some(rest) = fuzz::rest(request) else { return };
    check_route(&rest.routed);
    match rest.asked {
        None => {}
        Some(Err(error)) => {
            let code = error["error"]["code"].as_u64().expect("a status");
            assert!((400..500).contains(&code), "bad input is no fault of ours: {error}");
            assert!(error["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
            wire::one_document(&error.to_string());
        }
        Some(Ok(Asked::Send(said))) => {
            assert!(post, "only a POST sends");
            wire::check_message(rest.routed.dialect, &said);
        }
        Some(Ok(Asked::About(task) | Asked::Hook(task, _))) => {
            assert_eq!(rest.routed.task.as_deref(), Some(task.as_str()), "the path says which task");
        }
        Some(Ok(Asked::List(after))) => {
            if let Some(place) = after {
                assert_eq!(fuzz::place(&fuzz::page_token(&place)), Some(place));
            }
        }
        Some(Ok(Asked::Card)) => {}
    }
});

/// The same path, with everything in it that is somebody's name percent-encoded, names the same.
fn check_route(routed: &Routed) {
    let Routed { name, dialect, tenant, task } = routed;
    assert!(tenant.as_ref().is_none_or(|tenant| !tenant.is_empty()));
    assert!(task.as_ref().is_none_or(|task| !task.is_empty()));
    let task = task.as_deref().map(encoded).unwrap_or_default();
    let resource = match (*name, dialect) {
        ("task", _) => format!("tasks/{task}"),
        ("task:cancel", _) => format!("tasks/{task}:cancel"),
        ("task:subscribe", _) => format!("tasks/{task}:subscribe"),
        ("pushNotificationConfigs", _) => format!("tasks/{task}/pushNotificationConfigs"),
        ("extendedAgentCard", Dialect::V03Rest) => "card".into(),
        (name, _) => name.to_owned(),
    };
    let (prefix, asked) = match (dialect, tenant) {
        (Dialect::V1, None) => (String::new(), "1.0"),
        (Dialect::V1, Some(tenant)) => (format!("/{}", encoded(tenant)), "1.0"),
        (_, tenant) => {
            assert_eq!(*tenant, None, "0.3 has no tenants");
            ("/v1".into(), "0.3")
        }
    };
    let path = format!("{prefix}/{resource}");
    assert_eq!(fuzz::routed(&path, Some(asked)).as_ref(), Some(routed), "{path}");
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
