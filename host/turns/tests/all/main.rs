//! What the service promises, on the memory store.

mod kit;

mod accepted;
mod ends;
mod follow_up;
