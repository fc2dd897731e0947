//! JSON as protobuf has it: `google.protobuf.Struct` and `Value`.
//!
//! All numbers are doubles there, so an integer beyond 2^53 loses its last digits; integers within come back as integers.
//! Readers refuse a message that is nested 100 deep, and an object takes three levels, so a value deeper than
//! [`MAX_DEPTH`] is not encoded. That also bounds the work: prost measures a message once for each level around it.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as Proto};
use serde_json::{Map, Number, Value};
use talaria_turns::Metadata;

use crate::json_fields::Path;
use crate::rejection::{ErrorKind, Rejection, Violation};

/// Levels of lists and objects in one value.
const MAX_DEPTH: usize = 30;
/// Up to here every integer is a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value is nested too deep for the readers of protobuf.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

impl From<TooDeep> for Rejection {
    fn from(_: TooDeep) -> Self {
        let message = format!(
            "the answer has data nested more than {MAX_DEPTH} deep, which readers of protobuf refuse; use JSON-RPC or HTTP+JSON"
        );
        Self::new(ErrorKind::UnsupportedOperation, message)
    }
}

/// Encodes an object.
pub(super) fn object<'a>(
    members: impl IntoIterator<Item = (&'a String, &'a Value)>,
) -> Result<Struct, TooDeep> {
    object_at(members, 1)
}

/// Encodes an object with one member.
pub(super) fn member(name: impl Into<String>, value: impl Into<Proto>) -> Struct {
    Struct { fields: [(name.into(), value.into())].into() }
}

/// Encodes a value.
pub(super) fn value(value: &Value) -> Result<Proto, TooDeep> {
    value_at(value, 0)
}

fn object_at<'a>(
    members: impl IntoIterator<Item = (&'a String, &'a Value)>,
    depth: usize,
) -> Result<Struct, TooDeep> {
    if depth > MAX_DEPTH {
        return Err(TooDeep);
    }
    let fields = members.into_iter().map(|(name, value)| Ok((name.clone(), value_at(value, depth)?)));
    Ok(Struct { fields: fields.collect::<Result<_, _>>()? })
}

fn value_at(value: &Value, depth: usize) -> Result<Proto, TooDeep> {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(yes) => Kind::BoolValue(*yes),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(_) if depth >= MAX_DEPTH => return Err(TooDeep),
        Value::Array(values) => {
            let values = values.iter().map(|value| value_at(value, depth + 1)).collect::<Result<_, _>>()?;
            Kind::ListValue(ListValue { values })
        }
        Value::Object(members) => Kind::StructValue(object_at(members, depth + 1)?),
    };
    Ok(Proto { kind: Some(kind) })
}

/// Decodes an object.
pub(super) fn metadata(object: Option<Struct>, path: Path<'_>) -> Result<Option<Metadata>, Violation> {
    object.map(|object| members(object).ok_or_else(|| not_finite(path))).transpose()
}

/// Decodes a value.
pub(super) fn plain(value: Proto, path: Path<'_>) -> Result<Value, Violation> {
    read(value).ok_or_else(|| not_finite(path))
}

fn not_finite(path: Path<'_>) -> Violation {
    path.violation("must hold neither NaN nor infinity, which JSON cannot express")
}

/// `None` if a number is not finite.
fn members(object: Struct) -> Option<Map<String, Value>> {
    object.fields.into_iter().map(|(name, value)| Some((name, read(value)?))).collect()
}

fn read(value: Proto) -> Option<Value> {
    Some(match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(yes)) => Value::Bool(yes),
        Some(Kind::NumberValue(number)) => Value::Number(read_number(number)?),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => {
            Value::Array(list.values.into_iter().map(read).collect::<Option<_>>()?)
        }
        Some(Kind::StructValue(object)) => Value::Object(members(object)?),
    })
}

fn read_number(number: f64) -> Option<Number> {
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Some((number as i64).into());
    }
    Number::from_f64(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_survive_the_round_trip() {
        for example in [
            json!(null),
            json!(true),
            json!(7),
            json!(-7),
            json!(0.5),
            json!(1e300),
            json!("text"),
            json!([1, [], {}]),
            json!({ "a": { "b": [null, 2.5, "c"] }, "z": 1 }),
        ] {
            assert_eq!(plain(value(&example).unwrap(), Path::Root), Ok(example));
        }
        assert_eq!(plain(value(&json!(1.0)).unwrap(), Path::Root), Ok(json!(1)), "there are no integers");
    }

    #[test]
    fn numbers_that_json_lacks_are_rejected() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let object = member("x", bad);
            let path = Path::Field(&Path::Root, "metadata");
            assert_eq!(metadata(Some(object), path).unwrap_err().field, "metadata");
        }
    }

    #[test]
    fn deep_values_are_not_encoded() {
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": [inner] }));
        assert!(value(&nested(MAX_DEPTH / 2)).is_ok());
        assert_eq!(value(&nested(MAX_DEPTH / 2 + 1)), Err(TooDeep));
        let lists = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        assert!(value(&lists(MAX_DEPTH)).is_ok());
        assert_eq!(value(&lists(MAX_DEPTH + 1)), Err(TooDeep));
    }
}
