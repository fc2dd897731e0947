//! The core knows no product by name.
//!
//! A transport is a component that an operator adds without a release. That holds only while the crates that carry all
//! transports treat them alike, so none of them may name an agent, a platform or a model provider: not in code, not in
//! comments, not in tests.

use regex::Regex;

use crate::arrows::CORE;
use crate::sources::matches;

const PRODUCTS: &str = r"(?i)hermes|molecule|openai|litellm|openrouter|\bnous\b|anthropic|\bclaude\b|ollama|\bvllm\b|mistral|\bgemini\b|langchain|langgraph|crewai|llama";

#[test]
fn the_core_names_no_product() {
    let products = Regex::new(PRODUCTS).unwrap();
    let in_core = |path: &str| CORE.iter().any(|folder| path.starts_with(&format!("host/{folder}/")));
    let found = matches(&products, in_core);
    assert!(found.is_empty(), "{} lines of the core name a product:\n{}", found.len(), found.join("\n"));
}
