//! The description of this server for programs.

/// OpenAPI 3.1. The tests hold it to the routes, and the answers of a running host to its schemas.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");
