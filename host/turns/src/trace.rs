//! The trace that a turn belongs to, as W3C Trace Context has it.
//!
//! A caller may send its place in a trace with a request ([`TraceContext::parse`]); a turn has a place of its own in it, which
//! is stored with its message, so that it is the same after a restart. The caller's text is untrusted: only the exact form of
//! the recommendation counts, and anything else is as if it were not there.
//!
//! Nothing here is made or read unless traces are on. Who decides that, and which turns are recorded, is a [`TraceSampler`].

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest `tracestate` that is passed on: what every participant must be able to pass on.
const STATE: usize = 512;
/// The members of a `tracestate`.
const MEMBERS: usize = 32;
/// The length of a `traceparent` of version 00.
const PARENT: usize = 55;

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The id of a span in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

/// A span's place in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// The span that it is a child of, if it is of this host.
    pub parent: Option<SpanId>,
    /// Whether the parent is a span of another process.
    pub is_parent_remote: bool,
    /// Whether the trace is recorded.
    pub sampled: bool,
    /// What other participants added, passed on as it is: at most 512 bytes.
    pub state: Option<Arc<str>>,
}

/// Decides which requests and turns are recorded.
pub trait TraceSampler: Send + Sync + 'static {
    /// The place of a new span: a child of `caller`'s span, or the first of a trace.
    fn sample(&self, caller: Option<&TraceContext>) -> TraceContext;
}

// === impl TraceId ===

impl TraceId {
    /// A new one.
    #[must_use]
    pub fn fresh() -> Self {
        // Zero is no id; it comes up once in 2^128 times.
        Self(NonZeroU128::new(rand::random()).unwrap_or(NonZeroU128::MIN))
    }

    /// Its bytes, the first first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

// === impl SpanId ===

impl SpanId {
    /// A new one.
    #[must_use]
    pub fn fresh() -> Self {
        Self(NonZeroU64::new(rand::random()).unwrap_or(NonZeroU64::MIN))
    }

    /// The id of the span within this one in which the executor is called. It is derived, so that a turn that is resumed after
    /// a restart has it again, and what was called before is still a child of it.
    #[must_use]
    pub fn of_guest(self) -> Self {
        let derived = self.0.get().rotate_left(29) ^ 0x9e37_79b9_7f4a_7c15;
        Self(NonZeroU64::new(derived).unwrap_or(NonZeroU64::MAX))
    }

    /// Its bytes, the first first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for SpanId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = hex(text, 16).ok_or(())?;
        u64::from_str_radix(digits, 16).ok().and_then(NonZeroU64::new).map(Self).ok_or(())
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// The first span of a new trace.
    #[must_use]
    pub fn root(sampled: bool) -> Self {
        Self {
            trace: TraceId::fresh(),
            span: SpanId::fresh(),
            parent: None,
            is_parent_remote: false,
            sampled,
            state: None,
        }
    }

    /// A new span within this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: SpanId::fresh(), parent: Some(self.span), is_parent_remote: false, ..self.clone() }
    }

    /// Reads the headers `traceparent` and `tracestate` of a request, strictly. A `tracestate` that is not well-formed is left
    /// out. The result is the span of the sender.
    #[must_use]
    pub fn parse<'a>(parent: &str, states: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let text = parent;
        let version = hex(text.get(..2)?, 2)?;
        let has_form = match version {
            "ff" => false,
            "00" => text.len() == PARENT,
            // A later version may have more fields, after the ones that are known.
            _ => text.len() == PARENT || text.as_bytes().get(PARENT) == Some(&b'-'),
        };
        let mut fields = text.get(2..PARENT)?.strip_prefix('-')?.split('-');
        let (trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?);
        if !has_form || fields.next().is_some() {
            return None;
        }
        let trace = u128::from_str_radix(hex(trace, 32)?, 16).ok()?;
        let flags = u8::from_str_radix(hex(flags, 2)?, 16).ok()?;
        Some(Self {
            trace: TraceId(NonZeroU128::new(trace)?),
            span: span.parse().ok()?,
            parent: None,
            is_parent_remote: false,
            sampled: flags & 1 == 1,
            state: state(states),
        })
    }

    /// The header `traceparent` of a call that `span` of this trace makes.
    #[must_use]
    pub fn traceparent(&self, span: SpanId) -> String {
        format!("00-{}-{span}-{:02x}", self.trace, u8::from(self.sampled))
    }

    /// The bytes that it takes beside its fixed part.
    pub(crate) fn size(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.len())
    }
}

/// How a place is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    traceparent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    remote: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

/// For stores: a turn is in the same trace after a restart.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = Stored {
            traceparent: self.traceparent(self.span),
            parent: self.parent.map(|parent| parent.to_string()),
            remote: self.is_parent_remote,
            tracestate: self.state.as_deref().map(str::to_owned),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Stored { traceparent, parent, remote, tracestate } = Stored::deserialize(deserializer)?;
        let read = Self::parse(&traceparent, tracestate.as_deref());
        let read = read.ok_or_else(|| serde::de::Error::custom("not a trace context"))?;
        let parent = parent.and_then(|parent| parent.parse().ok());
        Ok(Self { parent, is_parent_remote: remote, ..read })
    }
}

/// The text, if it is so many hexadecimal digits in lower case.
fn hex(text: &str, digits: usize) -> Option<&str> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_hex)).then_some(text)
}

/// Joins the `tracestate` of several headers; `None` if it is empty, too long, or not of members `key=value`.
fn state<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Arc<str>> {
    let mut all = String::new();
    let mut members = 0;
    for member in headers.into_iter().flat_map(|header| header.split(',')) {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) {
            return None;
        }
        members += 1;
        if members > MEMBERS || all.len() + 1 + member.len() > STATE {
            return None;
        }
        if !all.is_empty() {
            all.push(',');
        }
        all.push_str(member);
    }
    (!all.is_empty()).then(|| all.into())
}

fn is_key(key: &str) -> bool {
    let is_in = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let begins = key.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins && key.len() <= 256 && key.bytes().all(is_in) && key.matches('@').count() <= 1
}

fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && !value.ends_with(' ')
        && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && !matches!(byte, b',' | b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text, [])
    }

    #[test]
    fn a_traceparent_has_one_form() {
        let context = parse(GOOD).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.sampled);
        assert_eq!(context.traceparent(context.span), GOOD);
        assert!(!parse(&format!("{}00", &GOOD[..53])).unwrap().sampled);
        let later = parse(&format!("cc{}-what-the-future-brings", &GOOD[2..])).unwrap();
        assert_eq!(later.traceparent(later.span), GOOD, "passed on in the version that is known");
        for bad in [
            "",
            "00",
            "00-",
            &GOOD[..54],
            &format!("{GOOD}-"),
            &format!("{GOOD}-01"),
            &format!(" {GOOD}"),
            &format!("{GOOD} "),
            &format!("ff{}", &GOOD[2..]),
            &format!("cc{}x", &GOOD[2..]),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ä",
            "äöü-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            &"0".repeat(100_000),
        ] {
            assert_eq!(parse(bad), None, "{bad:.80}");
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_if_it_is_well_formed_and_short() {
        let read = |headers: &[&str]| {
            let context = TraceContext::parse(GOOD, headers.iter().copied()).expect("the parent counts");
            context.state.map(|state| state.to_string())
        };
        assert_eq!(read(&["a=1, b=2", "", " c@d=x y"]).as_deref(), Some("a=1,b=2,c@d=x y"));
        assert_eq!(read(&[]), None);
        let many = vec!["a=1"; MEMBERS + 1].join(",");
        let long = format!("a={},b={}", "x".repeat(255), "y".repeat(256));
        for bad in ["a", "=1", "A=1", "a=", "a=1=2", "a=\u{7f}", "a=ä", "a b=1", "a@b@c=1", &many, &long] {
            assert_eq!(read(&[bad]), None, "{bad:.80}");
        }
    }

    #[test]
    fn a_stored_place_is_the_same_place() {
        let sender = TraceContext::parse(GOOD, ["a=1"]).unwrap();
        for context in [sender.child(), TraceContext { is_parent_remote: true, ..sender.child() }, sender] {
            let stored = serde_json::to_string(&context).unwrap();
            assert_eq!(serde_json::from_str::<TraceContext>(&stored).unwrap(), context, "{stored}");
        }
        assert!(serde_json::from_str::<TraceContext>(r#"{"traceparent":"x"}"#).is_err());
    }

    #[test]
    fn a_child_is_in_the_same_trace() {
        let root = TraceContext::root(true);
        let child = root.child();
        assert_eq!((child.trace, child.parent, child.sampled), (root.trace, Some(root.span), true));
        assert_ne!(child.span, root.span);
        assert_ne!(child.span.of_guest(), child.span);
        assert_eq!(child.span.of_guest(), child.span.of_guest());
    }
}
