//! Traps in `describe`. For the host's tests.

use talaria_guest::{Description, Executor, Failure, Outcome, Turn};

struct TrapDescribe;

impl Executor for TrapDescribe {
    fn describe() -> Description {
        core::arch::wasm32::unreachable()
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        Ok(Outcome::text(turn.text))
    }
}

talaria_guest::export!(TrapDescribe);
