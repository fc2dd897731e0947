//! A message that is encoded and decoded again is the same, in both versions.

use proptest::prelude::*;
use prost::Message as _;
use talaria_budget::Budget;
use talaria_turns::{Content, Metadata};

use super::{Params, frame, json, v1, v03};
use crate::json_fields::Path;
use crate::operation::{Addressed, Answer, Sent, Verb};
use crate::samples;

/// The same with its numbers as doubles, which is all that protobuf has.
fn with_doubles(mut sample: Addressed) -> Addressed {
    let object = |metadata: &mut Option<Metadata>| {
        if let Some(object) = metadata {
            let written = json::object(&*object).unwrap();
            *metadata = json::metadata(Some(written), Path::Root).unwrap();
        }
    };
    object(&mut sample.message.metadata);
    for part in &mut sample.message.parts {
        object(&mut part.metadata);
        if let Content::Data(value) = &mut part.content {
            *value = json::plain(json::value(value).unwrap(), Path::Root).unwrap();
        }
    }
    sample
}

fn answer(sample: &Addressed) -> Answer {
    Answer::Sent(Sent::Message(sample.clone()))
}

fn sent(read: Result<Params, crate::rejection::Rejection>) -> Addressed {
    read.unwrap().message.unwrap()
}

proptest! {
    #[test]
    fn a_message_of_1_0_survives_the_round_trip(sample in samples::message(samples::part())) {
        let sample = with_doubles(sample);
        let bytes = v1::answer(&answer(&sample)).unwrap();
        let told = v1::pb::SendMessageResponse::decode(frame::unframe(&bytes).unwrap()).unwrap();
        let Some(v1::pb::send_message_response::Payload::Message(message)) = told.payload else { panic!() };
        let request = v1::pb::SendMessageRequest { message: Some(message), ..Default::default() };
        let mut charge = Budget::unlimited().nothing();
        prop_assert_eq!(sent(v1::read(Verb::Send, &request.encode_to_vec(), &mut charge)), sample);
    }

    #[test]
    fn a_message_of_0_3_survives_the_round_trip(sample in samples::message(samples::part_of_03())) {
        let mut sample = with_doubles(sample);
        sample.message.reference_task_ids.clear();
        let bytes = v03::answer(&answer(&sample)).unwrap();
        let told = v03::pb::SendMessageResponse::decode(frame::unframe(&bytes).unwrap()).unwrap();
        let Some(v03::pb::send_message_response::Payload::Msg(message)) = told.payload else { panic!() };
        let request = v03::pb::SendMessageRequest { request: Some(message), ..Default::default() };
        let mut charge = Budget::unlimited().nothing();
        prop_assert_eq!(sent(v03::read(Verb::Send, &request.encode_to_vec(), &mut charge)), sample);
    }
}
