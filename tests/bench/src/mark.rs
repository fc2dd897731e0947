//! Timestamps in streamed text: when a piece was due, and when the upstream sent it. A reader can tell how late a piece is,
//! because the upstream and the readers share one process and one clock.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// The times of a piece, relative to the first use of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) due: Duration,
    pub(crate) sent: Duration,
}

/// The delimiter of a mark, which occurs nowhere else in the text.
const EDGE: u8 = b'~';

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The current time on the clock of all marks.
pub(crate) fn now() -> Duration {
    since_start(Instant::now())
}

fn since_start(at: Instant) -> Duration {
    at.saturating_duration_since(*START)
}

// === impl Mark ===

impl Mark {
    /// The mark of a piece that is sent now.
    pub(crate) fn now(due: Instant) -> Self {
        Self { due: since_start(due), sent: now() }
    }

    /// Finds the marks in some bytes. Returns how many bytes are finished: the last mark may be cut off.
    pub(crate) fn all_in(bytes: &[u8], mut each: impl FnMut(Self)) -> usize {
        let mut done = 0;
        while let Some(open) = edge(bytes, done) {
            let Some(close) = edge(bytes, open + 1) else { return open };
            done = close + 1;
            if let Some(mark) = bytes.get(open + 1..close).and_then(Self::parse) {
                each(mark);
            }
        }
        bytes.len()
    }

    fn parse(inside: &[u8]) -> Option<Self> {
        let (due, sent) = std::str::from_utf8(inside).ok()?.split_once(':')?;
        let time = |micros: &str| micros.parse().ok().map(Duration::from_micros);
        Some(Self { due: time(due)?, sent: time(sent)? })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = char::from(EDGE);
        write!(f, "{edge}{}:{}{edge}", self.due.as_micros(), self.sent.as_micros())
    }
}

fn edge(bytes: &[u8], from: usize) -> Option<usize> {
    Some(from + bytes.get(from..)?.iter().position(|byte| *byte == EDGE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_marks_wherever_the_bytes_are_cut() {
        let marks = [(1, 2), (3_000_000, 4_000_000)]
            .map(|(due, sent)| Mark { due: Duration::from_micros(due), sent: Duration::from_micros(sent) });
        let text = format!("data: \"{} so\"\n\n5c\r\nid: 2 {} ", marks[0], marks[1]);
        for cut in 0..text.len() {
            let (mut held, mut found) = (Vec::new(), Vec::new());
            for piece in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                held.extend_from_slice(piece);
                let done = Mark::all_in(&held, |mark| found.push(mark));
                held.drain(..done);
            }
            assert_eq!(found, marks, "cut at {cut}");
        }
    }
}
