//! Each kind of mistake, and the line that it is told in.

use super::Given;

/// The error for a file with this text.
fn error(text: &str) -> String {
    Given::file(text).error()
}

#[test]
fn an_unknown_key_suggests_the_nearest() {
    assert_eq!(
        error("\n[a2a]\nlissten = \"127.0.0.1:1\""),
        "talaria.toml:3:1: unknown key `a2a.lissten`; did you mean `listen`? (known: listen, url, trusted_proxies, reply, stream, cors, max_body, auth, grpc, card)"
    );
    assert_eq!(
        error("[exector.x]"),
        "talaria.toml:1:2: unknown key `exector`; did you mean `executor`? \
         (known: a2a, push, callback, admin, store, executors, executor, route, engine, egress, oci, limits, telemetry, redact, tools, gateway)"
    );
    assert_eq!(
        error("[executor.chat-completions.grant]\n  egres = []"),
        "talaria.toml:2:3: unknown key `executor.chat-completions.grant.egres`; did you mean `egress`? \
         (known: egress, private, secrets, callbacks, tools, wasi_http, random, precise_clock, folder, memory, cpu, calls, connections, bytes_in, bytes_out, events, output, log_lines, log_bytes, state)"
    );
    assert_eq!(
        error("[a2a.auth]\ntokens = [{ name = \"a\", tokne = { env = \"A\" } }]"),
        "talaria.toml:2:25: unknown key `a2a.auth.tokens[0].tokne`; did you mean `token`? (known: name, token, stream, limits)"
    );
    assert_eq!(
        error("[a2a.auth]\ntokens = [{ name = \"a\", token = { evn = \"A\" } }]"),
        "talaria.toml:2:35: unknown key `a2a.auth.tokens[0].token.evn`; did you mean `env`? (known: env, file)"
    );
    assert_eq!(
        error("[push]\nzzz = 1"),
        "talaria.toml:2:1: unknown key `push.zzz` (known: allow_private, timeout, tries, pause)"
    );
}

#[test]
fn a_key_in_the_wrong_section_suggests_the_right_one() {
    assert_eq!(
        error("max_body = \"1MiB\""),
        "talaria.toml:1:1: unknown key `max_body`; did you mean `a2a.max_body`? \
         (known here: a2a, push, callback, admin, store, executors, executor, route, engine, egress, oci, limits, telemetry, redact, tools, gateway)"
    );
}

#[test]
fn wrong_types_say_what_is_expected() {
    assert_eq!(
        error("[a2a]\nlisten = 8000"),
        "talaria.toml:2:10: `a2a.listen`: invalid type: integer `8000`, expected socket address"
    );
    assert_eq!(
        error("[a2a]\nmax_body = 100"),
        "talaria.toml:2:12: `a2a.max_body`: invalid type: integer `100`, expected a size such as \"64MiB\""
    );
    assert_eq!(error("a2a = 1"), "talaria.toml:1:7: `a2a`: invalid type: integer `1`, expected a table");
    assert_eq!(
        error("[limits]\nturns = 0"),
        "talaria.toml:2:9: `limits.turns`: invalid value: integer `0`, expected a nonzero u32"
    );
    assert_eq!(
        error("[a2a]\nreply = \"tsak\""),
        "talaria.toml:2:9: `a2a.reply`: unknown value \"tsak\"; did you mean \"task\"? (known: \"auto\", \"message\", \"task\")"
    );
    assert_eq!(
        error("[[a2a.auth.tokens]]\nname = \"x\""),
        "talaria.toml:1:1: `a2a.auth.tokens[0]` lacks the key `token`"
    );
}

#[test]
fn errors_of_values_show_valid_ones() {
    assert_eq!(
        error("[a2a]\nlisten = \"localhost\""),
        "talaria.toml:2:10: `a2a.listen`: invalid socket address syntax"
    );
    assert_eq!(
        error("[a2a]\nmax_body = \"16 megs\""),
        "talaria.toml:2:12: `a2a.max_body`: `16 megs` is no size; write a whole number and a unit, such as \"64MiB\" or \"512KiB\""
    );
    assert_eq!(
        error("[executor.conformance]\ndeadline = \"ten\""),
        "talaria.toml:2:12: `executor.conformance.deadline`: `ten` is no duration; \
         write a number and a unit, such as \"600s\" or \"10m\""
    );
    assert_eq!(
        error("[executor.conformance]\ndeadline = \"0s\""),
        "talaria.toml:2:12: `executor.conformance.deadline`: a duration of 0 leaves no time for anything; give at least \"1ms\""
    );
    assert_eq!(
        error("[a2a]\nurl = \"example.com\""),
        "talaria.toml:2:7: `a2a.url`: `example.com` is no address that starts with http:// or https://; \
         write it like \"http://127.0.0.1:8000\""
    );
    assert_eq!(
        error("[executor.Loud]\n"),
        "talaria.toml:1:11: `executor.Loud`: `Loud` is not a valid executor name; \
         use lower-case letters, digits and hyphens, at most 64, such as `my-agent`"
    );
    assert_eq!(
        error("[executor.x.grant]\negress = [\"https://a.example/\"]"),
        "talaria.toml:2:11: `executor.x.grant.egress[0]`: bad egress pattern \"https://a.example/\" at position 0: \
         the method is missing; write \"POST https://a.example/\", or * for every method"
    );
    assert_eq!(
        error("[executor.conformance.settings]\nx = nan"),
        "talaria.toml:1:1: `executor.conformance.settings`: `x`: JSON has no such number, and a component gets its settings as JSON"
    );
    assert_eq!(
        error("[executor.chat-completions.settings]\nbase_url = 1"),
        "talaria.toml:2:12: `executor.chat-completions.settings.base_url`: not a string; write it in quotes"
    );
    assert_eq!(
        error("[executor.conformance.grant]\ntools = [\"list_peers\", \"list *\"]"),
        "talaria.toml:2:24: `executor.conformance.grant.tools[1]`: it is no name of a tool: 1 to 128 letters, digits, `_` and `-`"
    );
    assert_eq!(
        error("[executor.conformance.grant]\nsecrets = [{ name = \"A\", to = [\"nowhere\"] }]"),
        "talaria.toml:2:12: `executor.conformance.grant.secrets[0]`: bad egress pattern \"* nowhere\" at position 2: \
         the scheme is missing; write http://host/path after one space"
    );
}

#[test]
fn a_syntax_error_has_a_position() {
    assert_eq!(error("[a2a\n"), "talaria.toml:1:5: not valid TOML: unclosed table, expected `]`");
    assert_eq!(error("[limits]\nturns = 1\nturns = 2"), "talaria.toml:3:1: not valid TOML: duplicate key");
    let given = Given::nothing().with("talaria.toml", b"[a2a]\n# \xff\n");
    assert_eq!(given.error(), "talaria.toml:2:1: is not UTF-8 text");
    let given = Given::nothing().with("talaria.toml", " ".repeat(1024 * 1024 + 1));
    assert_eq!(given.error(), "talaria.toml: is larger than 1 MiB; this is no configuration file");
}

#[test]
fn unsupported_features_are_reported() {
    assert_eq!(
        error("[store]\nurl = \"postgres://user:hunter2@db/x\""),
        "talaria.toml:2:7: `store.url`: `postgres:` is not supported by this version; use \"sqlite:talaria.db\" or \"memory:\""
    );
    assert_eq!(
        error("[store]\nurl = \"redis:\""),
        "talaria.toml:2:7: `store.url`: no such store; use \"sqlite:talaria.db\" or \"memory:\""
    );
    assert_eq!(
        error("[store]\nurl = \"sqlite:\""),
        "talaria.toml:2:7: `store.url`: names no file; use \"sqlite:talaria.db\""
    );
    assert_eq!(
        error("[executor.x]\ncomponent = \"builtin:telepathy\""),
        "talaria.toml:2:13: `executor.x.component`: no built-in component `telepathy` \
         (built in: a2a, chat-completions, conformance, hermes, hermes-runs, plugin-callback)"
    );
}

#[test]
fn an_agent_has_an_address() {
    let section = "[executor.x]\ncomponent = \"builtin:a2a\"\n";
    assert!(
        error(section)
            .ends_with("`executor.x.settings.url`: missing; name the agent, like \"http://127.0.0.1:9900\""),
        "{}",
        error(section)
    );
    for (settings, key) in [
        ("url = 7", "url"),
        ("url = \"agent:1\"", "url"),
        ("url = \"http://a\", interface_url = \"grpc://a\"", "interface_url"),
    ] {
        let error = error(&format!("{section}settings = {{ {settings} }}"));
        assert!(error.contains(&format!("`executor.x.settings.{key}`")), "{error}");
    }
}

#[test]
fn executors_must_exist() {
    assert_eq!(
        error("[executors]\ndefault = \"chat-completion\""),
        "talaria.toml:2:11: `executors.default`: there is no executor `chat-completion`; did you mean `chat-completions`? \
         (known: chat-completions, conformance)"
    );
    assert_eq!(
        error("[executors]\ndir = \"nowhere\""),
        "talaria.toml:2:7: `executors.dir`: there is no folder `nowhere`"
    );
    assert_eq!(
        error("\n[executor.x]\ndeadline = \"1s\""),
        "talaria.toml:2:1: `executor.x.component`: not given; give a path, `builtin:NAME` or `oci://…@sha256:…`, or put `x.wasm` into `executors.dir`"
    );
}

#[test]
fn a_named_file_must_exist() {
    assert_eq!(
        Given::nothing().config("gone.toml").error(),
        "gone.toml: there is no such file; correct `--config`, or leave it out"
    );
}

#[test]
fn tokens_must_be_set_and_distinct() {
    let tokens = |tokens: &str| Given::file(&format!("[a2a.auth]\ntokens = [{tokens}]"));
    assert_eq!(
        tokens("{ name = \"a\", token = { env = \"T\" } }").error(),
        "talaria.toml:2:33: `a2a.auth.tokens[0].token`: the environment variable `T` is not set; \
         set it, or give { file = \"PATH\" }"
    );
    assert_eq!(
        tokens("{ name = \"a\", token = { file = \"gone\" } }").error(),
        "talaria.toml:2:33: `a2a.auth.tokens[0].token`: `gone` cannot be read: No such file or directory (os error 2)"
    );
    assert_eq!(
        tokens("{ name = \"a\", token = { file = \"f\" } }").with("f", "\n").error(),
        "talaria.toml:2:33: `a2a.auth.tokens[0].token`: `f` is empty"
    );
    let long = tokens("{ name = \"a\", token = { file = \"f\" } }").with("f", "x".repeat(9000)).error();
    assert!(long.ends_with("`f` is longer than 8192 bytes; it should hold the secret alone"), "{long}");
    let two = "{ name = \"a\", token = { env = \"T\" } }, { name = \"a\", token = { env = \"T\" } }";
    assert!(tokens(two).variable("T", "t").error().ends_with("`a` is there twice; a name is one caller"));
    let two = "{ name = \"a\", token = { env = \"T\" } }, { name = \"b\", token = { env = \"T\" } }";
    assert!(
        tokens(two)
            .variable("T", "t")
            .error()
            .ends_with("the same token as another caller's; a token is one caller")
    );
    let spaced = tokens("{ name = \"a\", token = { env = \"T\" } }").variable("T", "hunter 2").error();
    assert!(spaced.ends_with("which no caller can send") && !spaced.contains("hunter"), "{spaced}");
    assert!(tokens("{ name = \" \", token = { env = \"T\" } }").error().ends_with("empty; name the caller"));
}

#[test]
fn an_invalid_signing_key_is_reported_with_a_fix() {
    let signing = |rest: &str| {
        Given::file(&format!(
            "a2a.url = \"https://a\"\n[a2a.card.signing]\nkey = {{ file = \"k.pem\" }}\n{rest}"
        ))
    };
    let named = || signing("kid = \"k1\"");
    assert_eq!(signing("").error(), "talaria.toml:2:1: `a2a.card.signing` lacks the key `kid`");
    assert_eq!(
        signing("kid = \" \"").error(),
        "talaria.toml:4:7: `a2a.card.signing.kid`: empty; name the key, so that callers can find its public half"
    );
    let make = "make one with `openssl genpkey -algorithm ed25519 -out card-key.pem`";
    assert_eq!(
        named().error(),
        format!(
            "talaria.toml:3:7: `a2a.card.signing.key`: `k.pem` cannot be read: No such file or directory (os error 2); \
             if there is no key yet, {make}"
        )
    );
    assert_eq!(
        named().with("k.pem", "hunter2").error(),
        format!("talaria.toml:3:7: `a2a.card.signing.key`: `k.pem` holds no private key in PEM; {make}")
    );
    let sec1 = "-----BEGIN EC PRIVATE KEY-----\naGk=\n-----END EC PRIVATE KEY-----\n";
    assert_eq!(
        named().with("k.pem", sec1).error(),
        "talaria.toml:3:7: `a2a.card.signing.key`: `k.pem` is not in PKCS#8; \
         convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY.pem -out card-key.pem`"
    );
    let variable = Given::file(
        "a2a.url = \"https://a\"\n[a2a.card]\nsigning = { key = { env = \"CARD_KEY\" }, kid = \"k1\" }",
    );
    assert_eq!(
        variable.variable("CARD_KEY", "hunter2").error(),
        format!(
            "talaria.toml:3:19: `a2a.card.signing.key`: the environment variable `CARD_KEY` holds no private key in PEM; {make}"
        )
    );
}

#[test]
fn a_signature_needs_an_address() {
    let given = Given::file("[a2a.card.signing]\nkey = { file = \"k.pem\" }\nkid = \"k1\"");
    assert_eq!(
        given.error(),
        "talaria.toml:1:1: `a2a.card.signing`: signs one address, and without `a2a.url` the card says whichever it was asked \
         for at; set `a2a.url`"
    );
}

#[test]
fn errors_in_proxies_and_origins_name_the_entry() {
    assert_eq!(
        error("[a2a]\ntrusted_proxies = [\"10.0.0.0/8\", \"10.0.0.0/33\"]"),
        "talaria.toml:2:34: `a2a.trusted_proxies[1]`: `10.0.0.0/33` must be an address like \"10.0.0.1\", or a range of them \
         like \"10.0.0.0/8\""
    );
    assert_eq!(
        error("[a2a]\ncors = [\"*\"]"),
        "talaria.toml:2:9: `a2a.cors[0]`: `*` must be a scheme and a host like \"https://app.example\", without a path; there \
         is no wildcard"
    );
    let stream = error("[a2a]\nstream = \"statsu\"");
    assert!(stream.contains("did you mean \"status\"?"), "{stream}");
    let proxies = Given::file("[a2a]\nurl = \"https://a\"\ntrusted_proxies = [\"10.0.0.1\"]").load();
    assert_eq!(proxies.warnings, ["`a2a.trusted_proxies` has no effect: the card says `a2a.url`"]);
    let nobody = Given::file("[a2a.card]\nextended_card = true").load();
    assert!(
        nobody.warnings[0].starts_with("`a2a.card.extended_card` has no effect"),
        "{:?}",
        nobody.warnings
    );
}

#[test]
fn an_address_of_grpc_is_checked() {
    for bad in ["https://a:1", "agents.example.com", "", "a:x", "u@a:1", ":1"] {
        let said = error(&format!("[a2a.grpc]\naddress = \"{bad}\""));
        assert_eq!(
            said,
            format!(
                "talaria.toml:2:11: `a2a.grpc.address`: `{bad}` must be a host and a port like \"agents.example.com:443\""
            )
        );
    }
    Given::file("[a2a.grpc]\naddress = \"[::1]:443\"\nlisten = \"127.0.0.1:50051\"\noffered = false").load();
    let same = error("[a2a]\nlisten = \"127.0.0.1:9000\"\n[a2a.grpc]\nlisten = \"127.0.0.1:9000\"");
    assert!(same.contains("`a2a.grpc.listen`: is the address of `a2a.listen`"), "{same}");
    let open = error("[a2a.grpc]\nlisten = \"0.0.0.0:50051\"");
    assert!(open.contains("`a2a.grpc.listen`: 0.0.0.0:50051 is beyond loopback"), "{open}");
}

#[test]
fn rejects_a_secret_in_the_file_without_repeating_it() {
    let inline = error("[a2a.auth]\ntokens = [{ name = \"a\", token = \"hunter2\" }]");
    assert_eq!(
        inline,
        "talaria.toml:2:33: `a2a.auth.tokens[0].token`: a secret is not written into the file; \
         give a reference: { env = \"NAME\" } or { file = \"PATH\" }"
    );
    let granted = error("[executor.conformance.grant]\nsecrets = [\"sk-hunter2\"]");
    assert_eq!(
        granted,
        "talaria.toml:2:12: `executor.conformance.grant.secrets[0]`: a secret is named by its environment variable: \
         A-Z, 0-9 and _, such as API_SERVER_KEY"
    );
    let both = error("[a2a.auth]\ntokens = [{ name = \"a\", token = { env = \"A\", file = \"B\" } }]");
    assert!(both.ends_with("both `env` and `file` are given; keep one"), "{both}");
}

#[test]
fn listening_beyond_loopback_needs_tokens_or_open() {
    let what = "0.0.0.0:80 is beyond loopback, and everybody who reaches it could call; \
                set `a2a.auth.tokens`, or `a2a.auth.open = true` if that is meant";
    assert_eq!(error("[a2a]\nlisten = \"0.0.0.0:80\""), format!("talaria.toml:2:10: `a2a.listen`: {what}"));
    assert_eq!(Given::nothing().listen("0.0.0.0:80").error(), format!("`--listen`: {what}"));
    let closed = Given::file("[a2a.auth]\nopen = false").variable("WORKSPACE_ID", "w").load();
    assert!(closed.a2a.platform_calls, "an explicit no holds in a workspace too: its platform has a token");
    let config = Given::file("[a2a]\nlisten = \"10.0.0.1:80\"\n[a2a.auth]\nopen = true").load();
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let tokens =
        "[a2a]\nlisten = \"10.0.0.1:80\"\n[a2a.auth]\ntokens = [{ name = \"a\", token = { env = \"T\" } }]";
    assert_eq!(Given::file(tokens).variable("T", "t").load().a2a.tokens.len(), 1);
    let both = Given::file(&format!("{tokens}\nopen = true")).variable("T", "t").error();
    assert_eq!(both, "talaria.toml:5:8: `a2a.auth.open`: contradicts `a2a.auth.tokens`; keep one of the two");
}

#[test]
fn the_admin_server_needs_a_token_beyond_loopback() {
    assert_eq!(
        error("[admin]\nlisten = \"0.0.0.0:8001\""),
        "talaria.toml:2:10: `admin.listen`: 0.0.0.0:8001 is beyond loopback, and everybody who reaches it could read what \
         it shows; set `admin.token`"
    );
    let file = "[admin]\nlisten = \"0.0.0.0:8001\"\ntoken = { env = \"ADMIN_TOKEN\" }";
    let admin = Given::file(file).variable("ADMIN_TOKEN", "s3cret").load().admin;
    assert!(admin.chosen && admin.token.is_some());
    assert_eq!(
        error("[admin]\ntoken = \"inline\""),
        "talaria.toml:2:9: `admin.token`: a secret is not written into the file; give a reference: { env = \"NAME\" } or \
         { file = \"PATH\" }"
    );
    let spaced =
        Given::file("[admin]\ntoken = { env = \"ADMIN_TOKEN\" }").variable("ADMIN_TOKEN", "two words");
    assert!(spaced.try_load().unwrap_err().to_string().contains("`admin.token`: the token holds a space"));
    let admin = Given::nothing().load().admin;
    assert_eq!((admin.listen.to_string().as_str(), admin.chosen), ("127.0.0.1:8001", false));
}

#[test]
fn errors_in_registries_and_references_show_valid_ones() {
    assert_eq!(
        error("[executor.x]\ncomponent = \"oci://registry/x@sha256:0\""),
        "talaria.toml:2:13: `executor.x.component`: `oci://registry/x@sha256:0` names no registry; \
         write it like `oci://ghcr.io/acme/agent@sha256:…`"
    );
    assert_eq!(
        error("[executor.x]\ncomponent = \"oci://ghcr.io/acme/x:v1\""),
        "talaria.toml:2:13: `executor.x.component`: `oci://ghcr.io/acme/x:v1` names no digest, and what a tag stands for \
         can change; find it with `crane digest ghcr.io/acme/x:v1` or `oras resolve ghcr.io/acme/x:v1`, \
         and write `oci://ghcr.io/acme/x@sha256:…`"
    );
    assert_eq!(
        error("[oci.registry.\"https://ghcr.io\"]"),
        "talaria.toml:1:6: `oci.registry.https://ghcr.io`: a registry is its host in lower case, \
         with the port where it has one: `ghcr.io`"
    );
    assert_eq!(
        error("[oci.registry.localhost]\nusername = \"a\""),
        "talaria.toml:1:1: `oci.registry.localhost`: `username` without `token`; give both, or neither"
    );
    assert!(error("[oci.registry.localhost]\ntoken = \"abc\"").contains("not written into the file"));
}
