//! What authors of executors use: a project to start from, and a test without a server or a network.
//!
//! | module | holds |
//! |---|---|
//! | `project` | `talaria executor new`: a project that builds and passes its own test |
//! | `trial` | `talaria executor test`: loads the component, runs turns, cancels one |
//! | `options` | the input of a trial |
//! | `cassette` | the file with a trial's turns and the upstream's responses |
//! | `cassette_server` | the HTTP server that answers from a cassette |
//! | `callbacks` | plays a cassette's callbacks |
//! | `timeline` | records what the component called |
//! | `report` | the result of a trial |
//! | `learn` | `talaria executor test --learn`: the smallest grant that a component's calls need |
//!
//! A trial loads an executor with the function that `serve` uses, and its calls pass the same egress; only the connection
//! ends at a stub in this process. The trial reads nothing from the environment, and every secret has a made-up value.
//!
//! The crate names no product: the caller says what answers calls when there is no cassette, and which metadata keys are
//! session variables.
#![forbid(unsafe_code)]

mod callbacks;
mod cassette;
mod cassette_server;
mod learn;
mod options;
mod project;
mod report;
mod timeline;
mod trial;

pub use cassette_server::Responder;
pub use learn::{LearnedGrant, learn};
pub use options::{TrialError, TrialOptions};
pub use project::{Language, Project, write_project};
pub use report::{Identity, Report, Step};
pub use timeline::Entry;
pub use trial::Trial;
