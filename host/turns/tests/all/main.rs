//! What the service promises, on the memory store.

mod kit;

mod accepted;
mod cancel;
mod ends;
mod follow_up;
mod readers;
mod restart;
