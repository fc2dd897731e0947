//! Says what it hears.

use talaria_guest::{Description, Executor, Failure, Outcome, Turn};

struct Echo;

impl Executor for Echo {
    fn describe() -> Description {
        Description::new("echo", env!("CARGO_PKG_VERSION"), "Says what it hears")
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        Ok(Outcome::text(turn.text))
    }
}

talaria_guest::export!(Echo);
