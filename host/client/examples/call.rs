//! `call OPERATION URL`: one call to an agent with the client, and what the client made of the answer as JSON.
//!
//! `cargo xtask acts` runs it against canned answers. An error of the agent is an answer; what keeps the client from an
//! answer goes to standard error, and the exit code is 1.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use talaria_client::{Agent, AgentOptions, ClientError, Delivery, Message};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (operation, url) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let called = Box::pin(call(&operation, url)).await;
    match called.and_then(|answer| Ok(writeln!(io::stdout(), "{answer}")?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn call(operation: &str, url: String) -> Result<Value, Box<dyn Error>> {
    let agent = Agent::new(AgentOptions { url, token: None, timeout: Duration::from_secs(10) })?;
    let client = agent.client(agent.card().await?.interface(None)?);
    let answer = match operation {
        "send_message" => {
            let answer = client.send(&Message::new("hello"), Delivery::Whole).await;
            answer.map(|answer| answer.raw().clone())
        }
        "get_task" => client.get_task("task").await,
        other => return Err(format!("the client has no operation {other}").into()),
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(ClientError::Rejected { error, .. }) => Ok(json!({ "error": error })),
        Err(error) => Err(error.into()),
    }
}
