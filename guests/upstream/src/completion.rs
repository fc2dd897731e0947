//! A completion, or a chunk of one, in the shape that it almost always has, read without a tree of values.
//!
//! Whatever has another shape, or says more than an answer (an error, images, a list of parts), is left to the tree. Both
//! ways accept the same inputs and read the same from them: fields that nobody reads are parsed all the same, and a field
//! that comes twice counts the last time. `IgnoredAny`, and with it a derived type, would take numbers, escapes and depths
//! that the tree rejects.

use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use talaria_guest::Usage;

/// What an answer, or a piece of it, says.
pub(crate) struct Plain {
    /// The text; empty if it is null, `None` if there is no content.
    pub(crate) text: Option<String>,
    /// Why the answer ended.
    pub(crate) finish_reason: Option<String>,
    /// The tokens that it consumed.
    pub(crate) usage: Option<Usage>,
}

impl Plain {
    /// Reads a whole body.
    pub(crate) fn of_body(json: &[u8]) -> Option<Self> {
        Self::read(json, |choice| choice.message)
    }

    /// Reads a chunk of a stream.
    pub(crate) fn of_chunk(json: &[u8]) -> Option<Self> {
        Self::read(json, |choice| choice.delta)
    }

    fn read(json: &[u8], message: impl Fn(Choice) -> Option<Message>) -> Option<Self> {
        let read: Completion = serde_json::from_slice(json).ok()?;
        if read.error.is_some() || read.hermes.is_some() {
            return None;
        }
        let usage = read.usage.and_then(|Tokens { input, output }| {
            let tokens = |tokens| u32::try_from(tokens).unwrap_or(u32::MAX);
            Some(Usage { input_tokens: tokens(input?), output_tokens: tokens(output?) })
        });
        let mut choice = read.choices.first.unwrap_or_default();
        let finish_reason = choice.finish_reason.take();
        let text = match message(choice) {
            Some(message) if message.images.is_some() => return None,
            Some(message) => message.content.0,
            None => None,
        };
        Some(Self { text, finish_reason, usage })
    }
}

/// The names of fields that are read.
enum Name {
    Choices,
    Usage,
    Error,
    Hermes,
    Message,
    Delta,
    FinishReason,
    Content,
    Images,
    PromptTokens,
    CompletionTokens,
    Other,
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, text: &str) -> Result<Name, E> {
                Ok(match text {
                    "choices" => Name::Choices,
                    "usage" => Name::Usage,
                    "error" => Name::Error,
                    "hermes" => Name::Hermes,
                    "message" => Name::Message,
                    "delta" => Name::Delta,
                    "finish_reason" => Name::FinishReason,
                    "content" => Name::Content,
                    "images" => Name::Images,
                    "prompt_tokens" => Name::PromptTokens,
                    "completion_tokens" => Name::CompletionTokens,
                    _ => Name::Other,
                })
            }
        }
        from.deserialize_str(Text)
    }
}

/// A value that is parsed and dropped.
struct Skipped;

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Skipped;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_unit<E>(self) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_str<E>(self, _: &str) -> Result<Skipped, E> {
                Ok(Skipped)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Skipped, A::Error> {
                while items.next_element::<Skipped>()?.is_some() {}
                Ok(Skipped)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Skipped, A::Error> {
                while fields.next_key::<Name>()?.is_some() {
                    fields.next_value::<Skipped>()?;
                }
                Ok(Skipped)
            }
        }
        from.deserialize_any(Any)
    }
}

/// An object of which some fields are read; a field that comes twice counts the last time.
macro_rules! object {
    ($object:ident { $($name:ident => $field:ident: $type:ty,)* }) => {
        #[derive(Default)]
        struct $object {
            $($field: $type,)*
        }

        impl<'de> Deserialize<'de> for $object {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> Visitor<'de> for Fields {
                    type Value = $object;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<$object, A::Error> {
                        let mut read = $object::default();
                        while let Some(name) = fields.next_key()? {
                            match name {
                                $(Name::$name => read.$field = fields.next_value()?,)*
                                _ => _ = fields.next_value::<Skipped>()?,
                            }
                        }
                        Ok(read)
                    }
                }
                from.deserialize_map(Fields)
            }
        }
    };
}

object!(Completion {
    Choices => choices: Choices,
    Usage => usage: Option<Tokens>,
    Error => error: Option<Skipped>,
    Hermes => hermes: Option<Skipped>,
});

object!(Choice {
    Message => message: Option<Message>,
    Delta => delta: Option<Message>,
    FinishReason => finish_reason: Option<String>,
});

object!(Message {
    Content => content: Content,
    Images => images: Option<Skipped>,
});

object!(Tokens {
    PromptTokens => input: Option<u64>,
    CompletionTokens => output: Option<u64>,
});

/// The first choice; the others are dropped.
#[derive(Default)]
struct Choices {
    first: Option<Choice>,
}

impl<'de> Deserialize<'de> for Choices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = Choices;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Choices, A::Error> {
                let first = items.next_element()?;
                while items.next_element::<Skipped>()?.is_some() {}
                Ok(Choices { first })
            }
        }
        from.deserialize_seq(Items)
    }
}

/// The content of a message, which has none unless there is such a field.
#[derive(Default)]
struct Content(Option<String>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(Self(Some(text.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{Beside, Ending, at};

    /// Text, finish reason and tokens.
    type Read = (Option<String>, Option<String>, Option<(u32, u32)>);

    fn plain(Plain { text, finish_reason, usage }: Plain) -> Read {
        (text, finish_reason, usage.map(|usage| (usage.input_tokens, usage.output_tokens)))
    }

    /// What the tree of values says, as `reply` and `chat` read it.
    fn by_tree(json: &[u8], path: &str) -> Option<Read> {
        let data: Value = serde_json::from_slice(json).ok()?;
        let (mut ending, mut beside) = (Ending::default(), Beside::default());
        ending.note(&data);
        let text = at(&data, path).and_then(|message| beside.take(message));
        assert!(beside.is_empty() && ending.error().is_none(), "{}", String::from_utf8_lossy(json));
        assert_eq!(ending.is_failed(), ending.finish_reason() == Some("error"));
        let tokens = ending.usage().map(|usage| (usage.input_tokens, usage.output_tokens));
        Some((text, ending.finish_reason().map(str::to_owned), tokens))
    }

    /// Reads both ways; `None` if it is left to the tree.
    fn same(json: &[u8]) -> Option<Read> {
        let chunk = Plain::of_chunk(json).map(plain);
        assert!(
            chunk.is_none() || chunk == by_tree(json, "/choices/0/delta"),
            "{}",
            String::from_utf8_lossy(json)
        );
        let body = Plain::of_body(json).map(plain);
        assert!(
            body.is_none() || body == by_tree(json, "/choices/0/message"),
            "{}",
            String::from_utf8_lossy(json)
        );
        body
    }

    const ANSWER: &str = r#"{"id":"c-1","created":1790000000,"choices":[{"index":0,"message":{"role":"assistant",
        "content":"h\u00e4 \"x\" \ud83d\ude00\n","refusal":null},"delta":{"content":null},"finish_reason":"stop","logprobs":null}],
        "usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"details":{"a":[1,-2.5e3,true]}},"error":null}"#;

    #[test]
    fn an_answer_is_read() {
        let (text, finish_reason, tokens) = same(ANSWER.as_bytes()).unwrap();
        assert_eq!(text.as_deref(), Some("h\u{e4} \"x\" \u{1f600}\n"));
        assert_eq!((finish_reason.as_deref(), tokens), (Some("stop"), Some((11, 7))));
        assert_eq!(Plain::of_chunk(ANSWER.as_bytes()).unwrap().text.as_deref(), Some(""));
    }

    #[test]
    fn shapes_are_read_as_the_tree_reads_them_or_left_to_it() {
        for (json, is_read) in [
            (r#"{"choices":[{"message":{"content":"hi"}}]}"#, true),
            (r#"{"choices":[{"message":{"content":null}}]}"#, true),
            (r#"{"choices":[{"message":{}}]}"#, true),
            (r#"{"choices":[{}]}"#, true),
            (r#"{"choices":[]}"#, true),
            (r#"{}"#, true),
            (r#"{"choices":[{"message":null}]}"#, true),
            (r#"{"choices":[{"message":{"content":"a","content":"b"}},{"message":{"content":"c"}}]}"#, true),
            (r#"{"choices":[{"message":{"content":"a"}}],"choices":[{"message":{"content":"b"}}]}"#, true),
            (r#"{"choices":[],"usage":{"prompt_tokens":99999999999,"completion_tokens":7}}"#, true),
            (r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, true),
            (r#"{"choices":[],"usage":null,"hermes":null}"#, true),
            (r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":null}}"#, true),
            (r#"{"choices":[],"hermes":{"failed":true}}"#, false),
            (r#"{"choices":[],"error":{"message":"no"}}"#, false),
            (r#"{"choices":[],"error":"no"}"#, false),
            (r#"{"choices":[{"message":{"content":["hi"]}}]}"#, false),
            (r#"{"choices":[{"message":{"content":7}}]}"#, false),
            (r#"{"choices":[{"message":{"content":"hi","images":[]}}]}"#, false),
            (r#"{"choices":[{"message":"hi"}]}"#, false),
            (r#"{"choices":{"0":{"message":{"content":"hi"}}}}"#, false),
            (r#"{"choices":[{"finish_reason":7}]}"#, false),
            (r#"{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":2.5}}"#, false),
            ("[]", false),
            ("<html>", false),
            ("", false),
        ] {
            let read = Plain::of_body(json.as_bytes());
            assert_eq!(read.is_some(), is_read, "{json}");
            // Parts, errors and failures are what the tree is for.
            if is_read {
                same(json.as_bytes());
            }
        }
    }

    #[test]
    fn what_the_tree_rejects_is_rejected_in_fields_that_nobody_reads() {
        let deep = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (value, is_read) in [
            ("1e999".to_owned(), false),
            (r#""\ud800""#.into(), false),
            (r#"{"\ud800":1}"#.into(), false),
            (r#""\x""#.into(), false),
            ("\"\u{1}\"".into(), false),
            ("01".into(), false),
            (deep(200), false),
            (deep(100), true),
            ("18446744073709551616".into(), true),
        ] {
            let json = format!(r#"{{"choices":[],"other":{value}}}"#);
            assert_eq!(Plain::of_body(json.as_bytes()).is_some(), is_read, "{value}");
            assert_eq!(serde_json::from_str::<Value>(&json).is_ok(), is_read, "{value}");
        }
        assert!(Plain::of_body(b"{\"choices\":[],\"other\":\"\xff\"}").is_none());
    }

    #[test]
    fn a_changed_answer_is_read_as_the_tree_reads_it() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % bound
        };
        let answer = ANSWER.replace("\"error\":null", "\"other\":null");
        let mut read = 0;
        for _ in 0..20_000 {
            let mut json = answer.clone().into_bytes();
            for _ in 0..=below(2) {
                let (from, to) = (below(json.len()), below(json.len()));
                match below(3) {
                    0 => _ = json.remove(from),
                    1 => {
                        let byte = json[to];
                        json.insert(from, byte);
                    }
                    _ => json.swap(from, to),
                }
            }
            read += usize::from(same(&json).is_some());
        }
        assert!(read > 1_000, "{read} were read");
    }
}
