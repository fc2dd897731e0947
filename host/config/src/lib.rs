//! The vocabulary of configuration, shared by every crate that owns a section of `talaria.toml`.
//!
//! A [`Source`] is a configuration file as text. It is parsed strictly, and every mistake becomes a [`ConfigError`] with
//! file, line and column, the key, and the fix. Values such as [`Period`] are checked when they are parsed, so no later code
//! sees a half-checked string. Secrets are never written into a file: a [`SecretRef`] says where the value is.
//!
//! This crate knows how configuration is written, not what is configured: the sections belong to the crates that use them.
#![forbid(unsafe_code)]

mod env;
pub mod files;
mod schema;
pub mod secret;
mod settled;
mod source;
pub mod value;
pub mod yaml;

pub use env::Env;
pub use schema::{Key, keys};
pub use secret::SecretRef;
pub use settled::Settled;
pub use source::{ConfigError, Problem, Source, nearest};
pub use value::{HttpUrl, Period, Size, count};
