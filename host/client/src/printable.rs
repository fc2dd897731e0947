//! Foreign text made safe for a terminal.

use std::fmt::{self, Display};

/// Displays text with each run of control characters replaced by U+FFFD; line feeds and tabs stay.
///
/// Control characters could move the cursor, set the window's title or type a command.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(pub &'a str);

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
