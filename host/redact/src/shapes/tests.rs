//! The rules: what they remove, what they leave, and that a second pass changes nothing.

use proptest::prelude::*;

use super::{Cow, Rules, RunRules, judge, kinds, label, shapes};
use crate::stream::tests::texts;

const BLOB: &str = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA7Kz";

#[test]
fn the_rules_compile() {
    Rules::compile().map(|_rules| ()).expect("constant patterns");
    RunRules::compile().map(|_rules| ()).expect("constant patterns");
    assert!(judge::compiles());
}

#[test]
fn secrets_are_removed() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo\n4lgOEePzNm0tRgeLezV6ffAt0gun\nab==\n-----END RSA PRIVATE KEY-----";
    let cases = [
        ("PROVIDER_API_KEY=abcdefgh12345678".into(), "PROVIDER_API_KEY=[REDACTED:api_key]".into()),
        ("export GITHUB_TOKEN = abcdefgh1 next".into(), "export GITHUB_TOKEN = [REDACTED:token] next".into()),
        ("my_client_secret=abcdefg1".into(), "my_client_secret=[REDACTED:secret]".into()),
        ("AWS_SECRET_ACCESS_KEY=abc/def+ghi".into(), "AWS_SECRET_ACCESS_KEY=[REDACTED:key]".into()),
        ("DB_PASSWORD='p w with spaces'".into(), "DB_PASSWORD='[REDACTED:password]'".into()),
        ("DB_PASSWORD=\"p w with spaces\" x".into(), "DB_PASSWORD=\"[REDACTED:password]\" x".into()),
        ("{\"c\":\"DB_PASSWORD=\\\"p w spaces\\\"\"}".into(), "{\"c\":\"DB_PASSWORD=\\\"[REDACTED:password]\\\"\"}".into()),
        ("DB_PASSWORD=\"cut off here\nnext".into(), "DB_PASSWORD=\"[REDACTED:password]\nnext".into()),
        ("GCP_CREDENTIALS=abcdefgh".into(), "GCP_CREDENTIALS=[REDACTED:credentials]".into()),
        ("1PASS_TOKEN=abcdefgh".into(), "1PASS_TOKEN=[REDACTED:token]".into()),
        ("X_TOKEN=Bearer zzzzzzzzzz".into(), "X_TOKEN=[REDACTED:token]".into()),
        ("X_TOKEN=Bearer zzz".into(), "X_TOKEN=[REDACTED:token]".into()),
        ("X_PASSWORD=pässwörd1。好".into(), "X_PASSWORD=[REDACTED:password]。好".into()),
        ("Authorization: Bearer zzzzzzzzzz".into(), "Authorization: Bearer [REDACTED:bearer_token]".into()),
        ("{\"authorization\":\"bearer abc.def-123\"}".into(), "{\"authorization\":\"bearer [REDACTED:bearer_token]\"}".into()),
        ("key sk-proj-abcdefghijklmnop.".into(), "key [REDACTED:sk_token].".into()),
        (format!("ghp_{}", "a1".repeat(18)), "[REDACTED:github_pat]".into()),
        (format!("ghs_{}", "a1".repeat(18)), "[REDACTED:github_server_token]".into()),
        (format!("gho_{}", "a1".repeat(18)), "[REDACTED:github_token]".into()),
        (format!("github_pat_{}", "a1_".repeat(25)), "[REDACTED:github_pat]".into()),
        ("AKIAIOSFODNN7EXAMPLE".into(), "[REDACTED:aws_access_key]".into()),
        (format!("cfut_{}", "a1".repeat(16)), "[REDACTED:cf_token]".into()),
        (format!("mol_pk_{}", "a1".repeat(10)), "[REDACTED:mol_pk]".into()),
        ("ctx7_abcdefgh1".into(), "[REDACTED:ctx7_token]".into()),
        (format!("AIza{}", "a1B-_".repeat(7)), "[REDACTED:google_api_key]".into()),
        (format!("HF_TOKEN is hf_{}", "aB".repeat(17)), "HF_TOKEN is [REDACTED:hf_token]".into()),
        (format!("gsk_{}", "a1B2".repeat(13)), "[REDACTED:groq_token]".into()),
        (format!("nvapi-{}", "a1_-".repeat(16)), "[REDACTED:nvidia_token]".into()),
        (format!("glpat-{}", "a1B2".repeat(5)), "[REDACTED:gitlab_token]".into()),
        ("xoxb-123456789012-1234567890123-abcdefABCDEF".into(), "[REDACTED:slack_token]".into()),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl!".into(), "[REDACTED:jwt]!".into()),
        ("postgres://app:hunter22@db:5432/x".into(), "postgres://app:[REDACTED:password]@db:5432/x".into()),
        ("redis://:pass@word#1@db/0".into(), "redis://:[REDACTED:password]@db/0".into()),
        (format!("blob {BLOB}=="), "blob [REDACTED:base64_blob]".into()),
        (format!("a\n{key}\nb"), "a\n[REDACTED:private_key]\nb".into()),
        (key.replace('\n', "\\n"), "[REDACTED:private_key]".into()),
        (key.replace('\n', " "), "[REDACTED:private_key]".into()),
        (key[..80].to_owned(), "[REDACTED:private_key]".into()),
        (format!("TLS_KEY=\"{key}\""), "TLS_KEY=\"[REDACTED:private_key]\"".into()),
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nAbc=\n-----END EC PRIVATE KEY-----".into(),
            "[REDACTED:private_key]".into(),
        ),
    ];
    for (text, expected) in cases as [(String, String); 40] {
        assert_eq!(shapes(&text), expected, "{text}");
        assert_eq!(shapes(&expected), expected, "twice: {text}");
    }
}

#[test]
fn ordinary_text_is_left_and_borrowed() {
    for text in [
        "",
        "The quick brown fox jumps over the lazy dog.",
        "X_TOKEN=short and API_KEY",
        "max_tokens=4096 top_k=1 MY_TOKEN_ID=abcdefghij",
        "if api_key == \"\" { return }",
        "Use Bearer authentication. A bearer credential: what is it?",
        "Bearer token",
        "task-0123456789abcdef0123 and disk-0123456789abcdef0123",
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        "/home/User1/Projects/Talaria/Host/Observe/Src/Scrub/Tests",
        "https://localhost:8080/packages/Org1/Name/Version/Files/Archive",
        "http://[::1]:8080/x@y http://h:4873/@scope/pkg mailto:someone@example.com",
        "Donaudampfschifffahrtsgesellschaftskapitaenswitwenrente",
        "550e8400-e29b-41d4-a716-446655440000",
        "hf_hub_download, gsk_context and nvapi-docs are names; AIza is how some keys begin; xoxb-token",
        "def test_sk_learn_pipeline(): pass  # sk-learn, task_id=01HZX, key=value, password reset",
        "The token bucket holds 100 tokens; its key is the client's address.",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "a file that starts with -----BEGIN PRIVATE KEY----- is a key",
        "postgres://app:short@db postgres://db/x",
        "你好，世界。これは秘密ではありません。",
        "[REDACTED:token] X_TOKEN=[REDACTED:token] Bearer [REDACTED:bearer_token] a://b:[REDACTED:password]@c",
    ] {
        let redacted = shapes(text);
        assert_eq!(redacted, text);
        assert!(matches!(redacted, Cow::Borrowed(_)), "copied: {text}");
    }
}

#[test]
fn labels_are_left_unchanged() {
    for kind in kinds() {
        let label = label(kind);
        for text in [label.clone(), format!("x{label}y"), format!("A_KEY={label}"), format!("Bearer {label}")]
        {
            assert_eq!(shapes(&text), text);
        }
    }
}

#[test]
fn a_blob_next_to_the_slash_of_a_url_is_removed_in_one_pass() {
    let text = "postgres://app:hunter22@db:5432/xq83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA7Kz==@";
    let once = shapes(text).into_owned();
    assert_eq!(shapes(&once), once);
    assert!(!once.contains("hunter22") && !once.contains("xq83"), "{once}");
}

#[test]
fn another_secret_inside_a_private_key_does_not_reveal_the_key() {
    let body = "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo";
    let long = "x".repeat(300);
    for inside in [
        format!("Comment: B_PASSWORD=\"{long}\""),
        "Comment: B_PASSWORD=\"back\\slash and more\"".to_owned(),
        "Version: B_TOKEN=\"carriage\rreturn\"".to_owned(),
        format!("Hash: Bearer {long}"),
        format!("Hash: postgres://app:{long}@db"),
        format!("Comment: {BLOB}{long}"),
    ] {
        let key = format!("-----BEGIN PRIVATE KEY-----\n{inside}\n\n{body}\n-----END PRIVATE KEY-----");
        assert_eq!(shapes(&key), "[REDACTED:private_key]", "{key}");
    }
}

#[test]
fn a_name_inside_the_value_of_another_does_not_reveal_its_value() {
    for (text, expected) in [
        ("X_TOKEN= DB_PASSWORD=\"zzzzzzzz\"", "X_TOKEN= DB_PASSWORD=\"[REDACTED:password]\""),
        ("X_TOKEN=\"DB_PASSWORD='zzzzzzzz'\"", "X_TOKEN=\"[REDACTED:token]\""),
        ("A_SECRET=\\\" DB_PASSWORD=\"zzzzzzzz\"", "A_SECRET=\\\"[REDACTED:secret]\"[REDACTED:password]\""),
        ("A_KEY='a b B_KEY='zzzzzzzz'", "A_KEY='[REDACTED:key]'[REDACTED:key]'"),
        ("A_KEY=B_KEY=Bearer zzzzzzzz", "A_KEY=[REDACTED:key] [REDACTED:key]"),
        ("A_KEY='a B_KEY=\"it's zzz\" and 'c", "A_KEY='[REDACTED:key]'[REDACTED:key]\" and 'c"),
        ("A_KEY=Token B_KEY=\"zzzzzzzz\"", "A_KEY=[REDACTED:key]\"[REDACTED:key]\""),
    ] {
        assert_eq!(shapes(text), expected, "{text}");
        assert_eq!(shapes(expected), expected, "twice: {text}");
    }
}

proptest! {
    #[test]
    fn redaction_is_idempotent(text in texts()) {
        let once = shapes(&text).into_owned();
        prop_assert_eq!(shapes(&once), once.as_str());
    }

    #[test]
    fn redaction_is_idempotent_for_any_text(text in "(?s).{0,80}") {
        let once = shapes(&text).into_owned();
        prop_assert_eq!(shapes(&once), once.as_str());
    }
}
