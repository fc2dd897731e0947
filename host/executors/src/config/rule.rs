//! `[[route]]`: which executor takes which messages.
//!
//! All conditions of a rule must hold; a condition that is left out always holds. Parsing checks each value; whether the
//! executor exists is checked with the whole file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::name::ExecutorName;

/// `[[route]]`
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table like { skill = \"…\", executor = \"…\" }")]
#[schemars(rename = "route")]
pub struct RouteRule {
    /// The name of the rule in explanations and metrics.
    ///
    /// Default: its position in the file: `route[0]`
    ///
    /// Example: `name = "papers"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The skill in the metadata of the message, else in that of the request: `skill`, `skillId` or `skill_id`. `*` matches
    /// any text, here and below.
    ///
    /// Default: any
    ///
    /// Example: `skill = ["papers", "search-*"]`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<Patterns>,
    /// The tenant of the request: the first part of its path, or its `tenant`.
    ///
    /// Default: any
    ///
    /// Example: `tenant = "acme"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Patterns>,
    /// The caller: the name of its token.
    ///
    /// Default: any
    ///
    /// Example: `principal = "platform"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Patterns>,
    /// The model that the message asks for: `model` in its metadata, else in that of the request.
    ///
    /// Default: any
    ///
    /// Example: `model = "acme/large-*"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Patterns>,
    /// Other metadata of the message, else of the request: each key with the values that match.
    ///
    /// Default: any
    ///
    /// Example: `metadata = { tier = ["gold", "silver"] }`
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Patterns>,
    /// The percentage of contexts that the rule takes; the others go on to the next rule. The context id decides, so a
    /// context stays with its executor, and a larger weight only adds contexts.
    ///
    /// Default: all
    ///
    /// Example: `weight = 5`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The executor that takes the message.
    ///
    /// Example: `executor = "my-agent"`
    pub executor: ExecutorName,
}

/// Patterns in which `*` matches any text; one of them must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns(Vec<String>);

/// A percentage of contexts, from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Weight(f64);

// === impl RouteRule ===

impl RouteRule {
    /// Whether it matches every message.
    pub fn takes_all(&self) -> bool {
        let Self { name: _, skill, tenant, principal, model, metadata, weight, executor: _ } = self;
        skill.is_none()
            && tenant.is_none()
            && principal.is_none()
            && model.is_none()
            && metadata.is_empty()
            && weight.is_none_or(|weight| weight.0 >= 100.0)
    }
}

// === impl Patterns ===

impl Patterns {
    /// Whether one of them matches the text.
    pub fn match_text(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, text))
    }

    /// The patterns without `*`.
    pub fn plain(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|pattern| !pattern.contains('*'))
    }
}

/// Searches for each piece between two stars after the one before, so the text is read once.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*') {
        let Some(at) = text.find(piece) else { return false };
        text = text.get(at + piece.len()..).unwrap_or_default();
    }
    text.ends_with(tail)
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" or "))
    }
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Patterns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern such as \"acme-*\", or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Patterns, E> {
        match text {
            "" => Err(E::custom("an empty pattern matches nothing; leave the key out, or write \"*\"")),
            text => Ok(Patterns(vec![text.to_owned()])),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Patterns, A::Error> {
        let mut patterns = Vec::new();
        while let Some(pattern) = list.next_element::<String>()? {
            patterns.extend(self::OneOrMore.visit_str::<A::Error>(&pattern)?.0);
        }
        match patterns.is_empty() {
            true => {
                Err(de::Error::custom("an empty list matches nothing; leave the key out, or write \"*\""))
            }
            false => Ok(Patterns(patterns)),
        }
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore)
    }
}

impl Serialize for Patterns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => serializer.serialize_str(one),
            more => serializer.collect_seq(more),
        }
    }
}

impl JsonSchema for Patterns {
    fn schema_name() -> Cow<'static, str> {
        "Patterns".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A pattern in which * stands for any text, or a list of them.",
            "oneOf": [
                { "type": "string", "minLength": 1 },
                { "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } },
            ],
        })
    }
}

// === impl Weight ===

impl Weight {
    /// The percentage.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let weight = f64::deserialize(deserializer)?;
        match (0.0..=100.0).contains(&weight) {
            true => Ok(Self(weight)),
            false => Err(de::Error::custom(format!(
                "{weight} is not a percentage; give a number from 0 to 100, such as 5"
            ))),
        }
    }
}

impl Serialize for Weight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl JsonSchema for Weight {
    fn schema_name() -> Cow<'static, str> {
        "Weight".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 100 })
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fit) in [
            ("acme", "acme", true),
            ("acme", "acme2", false),
            ("acme", "Acme", false),
            ("*", "", true),
            ("*", "anything", true),
            ("acme-*", "acme-", true),
            ("acme-*", "acme", false),
            ("*-acme", "the-acme", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*bc*c", "abc", false),
            ("a**c", "abc", true),
            ("*b*", "abc", true),
            ("*ü*", "für", true),
            ("*ab*ab", "ab", false),
            ("*ab*ab", "aab-ab", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }
}
