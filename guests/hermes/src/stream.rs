//! The answer as it comes: text goes out at once, thoughts and calls do not.
//!
//! What goes out adds up to the reply, which is trimmed: white space waits until more text follows it.

use talaria_guest::Request;
use talaria_guest::events::{self, Event};
use talaria_upstream::{
    Chunk, ERROR_BYTES, WHOLE_BODY, at, is_event_stream, is_success, next_chunk, read as read_body,
};

use crate::answer::Answer;
use crate::fault::Fault;

/// Text on its way out.
#[derive(Default)]
struct Outgoing {
    began: bool,
    space: String,
}

/// Reads the answer, passing on its text.
pub(crate) fn read(request: Request, answer: &mut Answer) -> Result<(), Fault> {
    let exchange = request.open()?;
    let status = exchange.status();
    if !is_success(status) {
        return Err(Fault::status(status, &read_body(&exchange, ERROR_BYTES)?));
    }
    if !is_event_stream(&exchange) {
        return answer.parse(&read_body(&exchange, WHOLE_BODY)?);
    }
    let mut outgoing = Outgoing::default();
    let done = loop {
        match next_chunk(&exchange)? {
            Chunk::Data { data, .. } => {
                answer.ending.note(&data);
                if let Some(delta) = at(&data, "/choices/0/delta") {
                    outgoing.say(&answer.take(delta, true))?;
                }
            }
            Chunk::Done => break true,
            Chunk::End => break false,
        }
    };
    outgoing.say(&answer.finish())?;
    answer.check()?;
    if done || answer.ending.is_finished() { Ok(()) } else { Err(Fault::cut()) }
}

impl Outgoing {
    fn say(&mut self, text: &str) -> Result<(), events::Error> {
        let joined = core::mem::take(&mut self.space) + text;
        let said = joined.trim_end();
        self.space = joined.get(said.len()..).unwrap_or_default().to_owned();
        let said = if self.began { said } else { said.trim_start() };
        if said.is_empty() {
            return Ok(());
        }
        self.began = true;
        events::emit(&Event::TextDelta(said.to_owned()))
    }
}
