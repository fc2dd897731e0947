//! Never returns from `describe`: it computes for ever. For the host's tests.

use talaria_guest::{Description, Executor, Failure, Outcome, Turn};

struct SpinDescribe;

impl Executor for SpinDescribe {
    fn describe() -> Description {
        loop {
            core::hint::black_box(0);
        }
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        Ok(Outcome::text(turn.text))
    }
}

talaria_guest::export!(SpinDescribe);
