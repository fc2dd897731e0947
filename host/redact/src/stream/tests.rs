//! The redacted pieces are together what the redacted whole is.

use proptest::prelude::*;

use super::{HOLD, TextStream};
use crate::redactor::Redactor;
use crate::reply::{Replies, ReplyRedactor};

pub(crate) const KNOWN: [&str; 4] =
    ["correct horse battery", "battery staple x", "hunter2hunter2", "日本 の 秘密 です"];

/// Secrets of every kind, their beginnings and ends, and surrounding text, concatenated at random.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    let secrets = prop::sample::select(vec![
        "sk-proj-abcdefghijklmnop",
        "ghp_a1a1a1a1a1a1a1a1a1a1a1",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA7Kz==",
        "postgres://app:hunter22@db:5432/x",
        "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
        "hvs.CAESIJ1hsZ3vVpguoRK9JLsLMREScVpezJpGXA7r",
        "zzzzzzzzzz",
        "hunter2\u{200B}2hunter",
        "sk-proj-abcd\u{2060}efghijklmnop",
        "correct horse \u{200B}battery",
        "short",
        "pässwörd1",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo\n4lgOEePzNm0tRgeLezV6ffAt0gun\nab==\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo\\n-----END PRIVATE KEY-----",
    ]);
    let known = prop::sample::select(KNOWN.to_vec());
    let openers = prop::sample::select(vec![
        "X_TOKEN=",
        "my_api_key = ",
        "DB_PASSWORD=\"",
        "DB_PASSWORD='",
        "A_SECRET=\\\"",
        "Bearer ",
        "bearer\t",
        "X_KEY",
        "=",
        " = ",
        "X_TOKEN=Bearer ",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "MIIEowIBAAKCAQEAu1SU",
        "Proc-Type: 4,ENCRYPTED",
        "https://u:",
        "\"password\": \"",
        "\\\"token\\\":\\\"",
        "password: ",
        "apiKey: '",
        "Authorization: Basic ",
        "Cookie: sid=",
        "?sig=",
        "&access_token=",
        "--token ",
        "curl -u ann:",
        "<secret>",
        "</secret>",
        "client_secret => `",
        "token: str = ",
        "X-Api-Key\", ",
        "data:image/png;base64,",
        "sha384-",
        "hooks.slack.com/services/",
        "${",
        "}",
        "(",
        "@",
        "\"",
        "'",
        "\\\"",
        "[REDACTED:token]",
        "correct ",
        "battery ",
        "日本 ",
    ]);
    let glue = prop::sample::select(vec![
        "",
        "",
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\\n",
        ". ",
        ",",
        "word",
        " a longer word ",
        "你好",
        "。",
        "\u{a0}",
        "\u{200B}",
        "\u{200D}",
        "\u{FEFF}",
        "&",
        "#",
        "ü",
        "-",
        "/",
    ]);
    let fragment = prop_oneof![
        4 => secrets.prop_map(str::to_owned),
        1 => known.prop_map(str::to_owned),
        4 => openers.prop_map(str::to_owned),
        5 => glue.prop_map(str::to_owned),
        1 => "[a-zA-Z0-9+/=_. -]{0,12}",
    ];
    prop::collection::vec(fragment, 0..14).prop_map(|fragments| fragments.concat())
}

fn pieces<'t>(text: &'t str, cuts: &[usize]) -> Vec<&'t str> {
    let mut cuts: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut % (text.len() + 1))).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

fn stream_of(redactor: &Redactor, replies: Replies) -> TextStream {
    ReplyRedactor::new(redactor.clone(), replies).stream()
}

fn stream<'t>(redactor: &Redactor, pieces: impl IntoIterator<Item = &'t str>) -> String {
    joined(stream_of(redactor, Replies::Shapes), pieces)
}

fn joined<'t>(mut stream: TextStream, pieces: impl IntoIterator<Item = &'t str>) -> String {
    let mut out: String = pieces.into_iter().map(|piece| stream.push(piece)).collect();
    out.push_str(&stream.finish());
    assert!(stream.held.is_empty() && !stream.in_key);
    out
}

fn by_char(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()])
}

proptest! {
    #[test]
    fn redacted_pieces_equal_the_redacted_whole(text in texts(), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        let redactor = Redactor::new(KNOWN);
        let whole = redactor.all(&text).into_owned();
        prop_assert_eq!(stream(&redactor, pieces(&text, &cuts)), whole.as_str());
        prop_assert_eq!(stream(&redactor, by_char(&text)), whole.as_str());
        let whole = redactor.values(&text).into_owned();
        for pieces in [pieces(&text, &cuts), by_char(&text).collect()] {
            prop_assert_eq!(joined(stream_of(&redactor, Replies::Values), pieces), whole.as_str());
        }
    }

    #[test]
    fn the_held_back_text_is_bounded(text in texts(), repeat in 1usize..40) {
        let text = text.repeat(repeat);
        let mut stream = stream_of(&Redactor::new(KNOWN), Replies::Shapes);
        for piece in pieces(&text, &(0..text.len()).step_by(37).collect::<Vec<_>>()) {
            stream.push(piece);
            prop_assert!(stream.held.len() <= HOLD, "{} bytes are held", stream.held.len());
        }
    }
}

/// A value with a line feed is held back by length, which may end inside a line.
#[test]
fn a_line_is_redacted_as_a_whole_whatever_is_held_back() {
    let redactor = Redactor::new(["first line\nsecond line"]);
    let padding = "x y ".repeat(60);
    let text = format!("one\nDB_PASSWORD=\"{padding}\" {padding}\ntwo first line\nsecond line {padding}");
    assert_eq!(stream(&redactor, by_char(&text)), redactor.all(&text));
}

#[test]
fn a_key_whose_header_looks_like_another_key_is_one_key() {
    let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: -----BEGIN PRIVATE KEY-----AAAA. \nMIIEowIBAAKCAQEAu1SU\n";
    let redactor = Redactor::new(KNOWN);
    assert_eq!(redactor.all(text), "[REDACTED:private_key]\n");
    assert_eq!(stream(&redactor, by_char(text)), redactor.all(text));
}

/// What is returned at once, and what only at the end.
fn at_once(stream: &mut TextStream, text: &str) -> (String, String) {
    (stream.push(text), stream.finish())
}

#[test]
fn text_passes_word_by_word_or_line_by_line() {
    for (replies, text, now, later) in [
        (Replies::Values, "Hello wor", "Hello ", "wor"),
        (Replies::Values, "Hello world ", "Hello world ", ""),
        (Replies::Values, "你好，世界", "你好，世界", ""),
        (Replies::Values, "X_TOKEN=\"one two ", "X_TOKEN=\"one two ", ""),
        (Replies::Values, "a hunter2hunter2 ", "a [REDACTED:secret] ", ""),
        (Replies::Shapes, "Hello wor", "", "Hello wor"),
        (Replies::Shapes, "Hello world\nand", "Hello world\n", "and"),
        (Replies::Shapes, "X_TOKEN=\"one two ", "", "X_TOKEN=\"[REDACTED:token]"),
        (Replies::Off, "X_TOKEN=hunter2hunter2", "X_TOKEN=hunter2hunter2", ""),
    ] {
        let mut stream = stream_of(&Redactor::new(["hunter2hunter2"]), replies);
        assert_eq!(at_once(&mut stream, text), (now.to_owned(), later.to_owned()), "{text}");
    }
}

#[test]
fn a_long_run_is_released_and_redacted() {
    let redactor = Redactor::new(KNOWN);
    let list: String = (0..2000).map(|index| format!("{index},")).collect();
    assert_eq!(stream(&redactor, by_char(&list)), list);
    let token = "sk-proj-abcdefghijklmnop";
    let list: String = (0..2000).map(|index| format!("{index},{token},")).collect();
    let out = stream(&redactor, by_char(&list));
    assert_eq!(out, redactor.all(&list), "commas are good places to cut");
    let blob = "q83vEjRWeJCrze8S".repeat(1000);
    let out = stream(&redactor, by_char(&blob));
    assert!(!out.contains("q83v"), "{out}");
}

#[test]
fn a_private_key_of_any_length_is_swallowed() {
    let line = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA7Kzq83vEjRWeJCrze8SNF\n";
    let end = "c2hvcnQ=\n-----END RSA PRIVATE KEY-----";
    let text =
        format!("before X_KEY=\"-----BEGIN RSA PRIVATE KEY-----\n{}{end}\" after. {end} z", line.repeat(300));
    let redactor = Redactor::new(KNOWN);
    let whole = redactor.all(&text).into_owned();
    assert_eq!(whole, format!("before X_KEY=\"[REDACTED:private_key]\" after. {end} z"));
    assert_eq!(stream(&redactor, by_char(&text)), whole);
    assert_eq!(stream(&redactor, pieces(&text, &(0..text.len()).step_by(1000).collect::<Vec<_>>())), whole);
    let cut_off = &text[..10_000];
    assert_eq!(stream(&redactor, by_char(cut_off)), redactor.all(cut_off));
}
