//! `[callback.plain]`: callbacks in a shape that the operator describes.

use super::Given;

/// A file whose default executor receives callbacks.
fn file(text: &str) -> Given {
    Given::file(&format!("[executors]\ndefault = \"plugin-callback\"\n{text}"))
}

fn error(text: &str) -> String {
    file(text).error()
}

#[test]
fn a_plain_callback_path_is_the_path_of_the_callback_url() {
    let bound = "127.0.0.1:1".parse().unwrap();
    let url = |text: &str| file(text).load().callback.unwrap().reply_url(bound);
    assert_eq!(url(""), "http://127.0.0.1:1/a2a/reply");
    assert_eq!(url("[callback.plain]"), "http://127.0.0.1:1/callback");
    assert_eq!(url("[callback.plain]\npath = \"/hooks/replies\""), "http://127.0.0.1:1/hooks/replies");
    assert_eq!(url("[callback]\nurl = \"http://front/x\"\n[callback.plain]"), "http://front/x");
}

#[test]
fn a_plain_callback_has_its_own_secret() {
    let plain = |listen: &str| {
        file(&format!("[callback]\nlisten = \"{listen}\"\n[callback.plain]"))
            .variable("MOLECULE_A2A_PLATFORM_SHARED_SECRET", "of-the-plugin")
    };
    assert!(plain("127.0.0.1:8646").load().callback.unwrap().secret.is_none());
    assert_eq!(
        plain("0.0.0.0:8646").error(),
        "talaria.toml:4:10: `callback.listen`: 0.0.0.0:8646 is beyond loopback, and everybody who reaches it could answer in the \
         agent's name; set `callback.secret` here and the same for the upstream"
    );
    let given = file("[callback]\nsecret = { env = \"MINE\" }\n[callback.plain]").variable("MINE", "mine");
    assert!(given.load().callback.unwrap().secret.is_some());
}

#[test]
fn a_plain_callback_beside_the_plugin_is_a_warning() {
    let config = file("[callback.plain]").variable("MOLECULE_A2A_PLATFORM_ENABLED", "1").load();
    let [warning] = config.warnings.try_into().unwrap();
    assert!(warning.contains("`[callback.plain]` rejects the callbacks of the plugin"), "{warning}");
}

#[test]
fn errors_in_a_plain_callback_name_their_key() {
    for (line, said) in [
        (
            "path = \"replies\"",
            "`callback.plain.path`: `replies` is not a path; write one such as `/replies`, without a query",
        ),
        (
            "path = \"/replies?a=1\"",
            "`callback.plain.path`: `/replies?a=1` is not a path; write one such as `/replies`, without a query",
        ),
        (
            "secret_header = \"x secret\"",
            "`callback.plain.secret_header`: `x secret` is not the name of a header",
        ),
        (
            "message_id = \"id\"",
            "`callback.plain.message_id`: `id`: not a JSON pointer; write one such as `/reply/text`",
        ),
        (
            "content = \"\"",
            "`callback.plain.content`: ``: not a JSON pointer; write one such as `/reply/text`",
        ),
        (
            "chat = \"/a~2\"",
            "`callback.plain.chat`: `/a~2`: `~` must be followed by 0 (for `~`) or 1 (for `/`)",
        ),
    ] {
        let column = line.find('=').unwrap() + 3;
        assert_eq!(error(&format!("[callback.plain]\n{line}")), format!("talaria.toml:4:{column}: {said}"));
    }
    assert_eq!(
        error("[callback.plain]\nmessage = \"/id\""),
        "talaria.toml:4:1: unknown key `callback.plain.message`; did you mean `message_id`? \
         (known: path, secret_header, message_id, content, chat)"
    );
}
