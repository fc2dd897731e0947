//! Random messages and parts, for the property tests of the codecs.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Map, Value};
use talaria_turns::{Content, Message, Metadata, Part, Role};

use crate::operation::Addressed;

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Quarters, which every parser of floats reads exactly.
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,6}", inner), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    vec(("[a-z/_]{1,8}", value()), 0..3).prop_map(|members| members.into_iter().collect::<Map<_, _>>())
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        ".{0,20}".prop_map(Content::Text),
        value().prop_map(Content::Data),
        "[a-z]{1,5}:.{0,20}".prop_map(Content::Uri),
        vec(any::<u8>(), 0..20).prop_map(Content::Bytes),
    ]
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    (content(), of(".{1,10}"), of(".{1,10}"), of(metadata())).prop_map(
        |(content, media_type, filename, metadata)| Part { content, media_type, filename, metadata },
    )
}

/// A part that 0.3 can express.
pub(crate) fn part_of_03() -> impl Strategy<Value = Part> {
    part().prop_map(|mut part| {
        if matches!(part.content, Content::Text(_) | Content::Data(_)) {
            (part.media_type, part.filename) = (None, None);
        }
        // The mark for wrapped data makes no difference between absent and empty metadata.
        part.metadata = part.metadata.filter(|metadata| !metadata.is_empty());
        part
    })
}

pub(crate) fn message(part: impl Strategy<Value = Part>) -> impl Strategy<Value = Addressed> {
    let id = || "[!-~]{1,40}";
    let strings = || vec(".{0,10}", 0..3);
    let role = prop_oneof![Just(Role::User), Just(Role::Agent)];
    (id(), role, vec(part, 1..4), of(metadata()), strings(), strings(), of(id()), of(id())).prop_map(
        |(id, role, parts, metadata, extensions, reference_task_ids, task, context)| Addressed {
            message: Message {
                id: id.parse().unwrap(),
                role,
                parts,
                metadata,
                extensions,
                reference_task_ids,
            },
            task: task.map(|id| id.parse().unwrap()),
            context: context.map(|id| id.parse().unwrap()),
        },
    )
}
