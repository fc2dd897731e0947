//! The author's side of executors: a project to begin with, and a trial without a server and without a network.
//!
//! | file | holds |
//! |---|---|
//! | `project` | `talaria executor new`: a project that builds and passes its own trial |
//! | `trial` | `talaria executor test`: load, turns, a cancel |
//! | `cassette` | what a trial says, and what the upstream answers |
//! | `upstream` | the upstream that says it |
//! | `callbacks` | the same for replies that come out of band |
//! | `timeline` | what the component called |
//! | `report` | what came of it |
//! | `learn` | the least grant that the calls need |
//!
//! A trial loads an executor as `serve` does, by the same function, and its calls take the same way through the egress;
//! only the connection ends at a stand-in in this process. Nothing of the environment is read but where compiled
//! components are kept, and every secret has a made-up value.

mod callbacks;
mod cassette;
mod learn;
mod project;
mod report;
mod timeline;
mod trial;
mod upstream;

pub(crate) use learn::learn;
pub(crate) use project::{Language, write as write_project};
pub(crate) use trial::Trial;
