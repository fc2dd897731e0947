//! Tests of the whole product: the real binary, real components, real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its servers end with its runtime"
)]

mod bridge;
mod clock;
mod control_group;
mod gateway;
mod traffic;
mod webhook;

mod a2a;
mod admin;
mod author;
mod bad_configuration;
mod beside;
mod bytes;
mod check;
mod compile;
mod components;
mod crash;
mod demo;
mod doctor;
mod doctor_tools;
mod doors;
mod drain;
mod durable;
mod examples;
mod examples_workspace;
mod first_executor;
mod flood;
mod grpc;
mod hermes;
mod hermes_runs;
mod image;
mod logs;
mod memory;
mod metrics;
mod oci;
mod operator;
mod parts;
mod plain_callback;
mod plugin;
mod plugin_crash;
mod proxy;
mod push;
mod python_bridge;
mod quarantine;
mod ready;
mod restart;
mod routes;
mod secrets;
mod send;
mod shares;
mod signed_card;
mod store;
mod strangers;
mod swap;
mod team;
mod tokens;
mod tool_loop;
mod tool_servers;
mod tools;
mod traces;
mod workspace;
mod workspace_commands;
mod workspace_reports;
mod workspace_soak;
