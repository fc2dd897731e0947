//! The whole product: the real binary, real components, real sockets.

mod bridge;

mod bad_configuration;
mod check;
mod components;
mod demo;
mod drain;
mod durable;
mod first_executor;
mod seeds;
mod send;
mod tokens;
