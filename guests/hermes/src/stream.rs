//! A streamed answer: its text is passed on at once, thoughts and calls are not.
//!
//! The deltas add up to the reply, which is trimmed, so white space is held back until more text follows it.

use talaria_guest::Request;
use talaria_guest::events::{self, Event};
use talaria_upstream::{
    Chunk, ERROR_BYTES, WHOLE_BODY, at, is_event_stream, is_success, next_chunk, read as read_body,
};

use crate::answer::{Answer, GAP};
use crate::fault::Fault;

/// The text that is being passed on.
#[derive(Default)]
struct Outgoing {
    began: bool,
    /// Whether other text came before, in an earlier answer of the turn.
    continues: bool,
    space: String,
}

/// Reads the answer and passes its text on. With `continues` a gap sets it off from the text of an earlier answer.
pub(crate) fn read(request: Request, answer: &mut Answer, continues: bool) -> Result<(), Fault> {
    let exchange = request.open()?;
    let status = exchange.status();
    if !is_success(status) {
        let body = read_body(&exchange, ERROR_BYTES)?;
        return Err(Fault::status(status, &body).with(&exchange.headers()));
    }
    if !is_event_stream(&exchange) {
        return answer.parse(&read_body(&exchange, WHOLE_BODY)?);
    }
    let mut outgoing = Outgoing { continues, ..Outgoing::default() };
    let done = loop {
        match next_chunk(&exchange)? {
            Chunk::Data { data, .. } => {
                answer.ending.note(&data);
                if let Some(delta) = at(&data, "/choices/0/delta") {
                    let text = answer.take(delta, true);
                    answer.passed_on |= outgoing.say(&text)?;
                }
            }
            Chunk::Done => break true,
            Chunk::End => break false,
        }
    };
    let text = answer.finish();
    answer.passed_on |= outgoing.say(&text)?;
    answer.check()?;
    if done || answer.ending.is_finished() { Ok(()) } else { Err(Fault::cut()) }
}

impl Outgoing {
    /// Passes on what can be passed on; `false` if that is nothing.
    fn say(&mut self, text: &str) -> Result<bool, events::Error> {
        match self.next(text) {
            Some(said) => events::emit(&Event::TextDelta(said)).map(|()| true),
            None => Ok(false),
        }
    }

    /// The part of the text that is passed on now.
    fn next(&mut self, text: &str) -> Option<String> {
        let joined = core::mem::take(&mut self.space) + text;
        let said = joined.trim_end();
        self.space = joined.get(said.len()..).unwrap_or_default().to_owned();
        let said = if self.began { said } else { said.trim_start() };
        if said.is_empty() {
            return None;
        }
        let gap = if self.continues && !self.began { GAP } else { "" };
        self.began = true;
        Some(format!("{gap}{said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_out_adds_up_to_the_trimmed_text() {
        for (pieces, expected) in [
            (&["a", "b"][..], &["a", "b"][..]),
            (&[" \n", "a ", " ", "b ", "\n"], &["a", "  b"]),
            (&["", " ", ""], &[]),
            (&["  a  b  "], &["a  b"]),
        ] {
            let mut outgoing = Outgoing::default();
            let out: Vec<String> = pieces.iter().filter_map(|piece| outgoing.next(piece)).collect();
            assert_eq!(out, expected, "{pieces:?}");
            assert_eq!(out.concat(), pieces.concat().trim());
        }
        let mut outgoing = Outgoing { continues: true, ..Outgoing::default() };
        let out: Vec<String> =
            [" ", " a", " ", "b"].iter().filter_map(|piece| outgoing.next(piece)).collect();
        assert_eq!(out, ["\n\na", " b"], "a later answer is set off once");
    }
}
