//! Text from elsewhere, without the characters that a terminal obeys.

use std::fmt::{self, Display};

/// Text from elsewhere, fit for a terminal.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
            let clean = part.trim_end_matches(|c: char| c.is_control() && !matches!(c, '\n' | '\t'));
            f.write_str(clean)?;
            if clean.len() < part.len() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}
