//! Write a Talaria executor in Rust: implement [`Executor`], then one macro line.
//!
//! ```ignore
//! use talaria_guest::{Description, Executor, Failure, Outcome, Turn};
//!
//! struct Echo;
//!
//! impl Executor for Echo {
//!     fn describe() -> Description {
//!         Description::new("echo", env!("CARGO_PKG_VERSION"), "Says what it hears")
//!     }
//!
//!     fn execute(turn: Turn) -> Result<Outcome, Failure> {
//!         Ok(Outcome::text(turn.text))
//!     }
//! }
//!
//! talaria_guest::export!(Echo);
//! ```
//!
//! Code is straight-line: a call to [`http`], [`tools::call`], [`events::ask`] or [`control::sleep`] blocks, and the host
//! runs other turns meanwhile. Each turn has an instance of its own, so a `static` lives for one turn.
//!
//! Logic without such calls can be tested natively, see `testing`.

use serde::de::DeserializeOwned;

/// The generated bindings of the contract, `talaria:executor@0.1.0`.
#[expect(missing_docs, reason = "generated; the documentation is in the WIT files")]
#[allow(clippy::all, clippy::indexing_slicing, unreachable_pub, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        world: "executor",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_strategy",
        default_bindings_module: "talaria_guest::bindings",
        additional_derives: [Clone],
    });
}

/// The generated bindings of the optional export `transcript`.
#[expect(missing_docs, reason = "generated; the documentation is in the WIT files")]
#[allow(clippy::all, clippy::indexing_slicing, unreachable_pub, reason = "generated")]
pub mod transcript_bindings {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        inline: "package talaria:guest; world transcribed { export talaria:executor/transcript@0.1.0; }",
        world: "talaria:guest/transcribed",
        with: { "talaria:executor/types@0.1.0": crate::bindings::talaria::executor::types },
        pub_export_macro: true,
        export_macro_name: "export_transcript_of",
        default_bindings_module: "talaria_guest::transcript_bindings",
        additional_derives: [Clone],
    });
}

pub use bindings::talaria::executor::{
    callback, config, control, events, http, log, span, state, tools, types,
};
pub use types::{
    Capabilities, Content, Description, Failure, FailureKind, FinalState, Message, Needs, Outcome, Part,
    Role, SetupContext, Turn, Usage,
};

pub use transcript_bindings::exports::talaria::executor::transcript::{Line, Page, Query};

#[cfg(any(test, all(feature = "heap", target_arch = "wasm32", not(target_feature = "atomics"))))]
mod extents;
#[cfg(any(test, all(feature = "heap", target_arch = "wasm32", not(target_feature = "atomics"))))]
mod heap;
mod request;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod wasi;
pub use request::Request;

/// An executor: one way of reaching an agent.
pub trait Executor {
    /// Describes the component.
    fn describe() -> Description;

    /// Proves that the upstream can be reached. With [`FailureKind::Upstream`] the executor is loaded but not ready.
    ///
    /// # Errors
    /// A [`Failure`] that says what to fix.
    fn setup(context: SetupContext) -> Result<(), Failure> {
        let _ = context;
        Ok(())
    }

    /// Executes a turn.
    ///
    /// # Errors
    /// A [`Failure`] whose message the caller reads.
    fn execute(turn: Turn) -> Result<Outcome, Failure>;

    /// Stops the upstream's work for a cancelled turn. Runs in an instance of its own.
    ///
    /// # Errors
    /// A [`Failure`] for the operator's log.
    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        let _ = (turn, checkpoint);
        Ok(())
    }
}

/// The optional record of the upstream's own sessions.
pub trait Transcript {
    /// Reads lines, oldest first, from `query.since` on, at most `query.limit`.
    ///
    /// # Errors
    /// A [`Failure`] that says why the record cannot be read.
    fn read(query: Query) -> Result<Page, Failure>;
}

/// Exports a type that implements [`Transcript`] from the component.
#[macro_export]
macro_rules! export_transcript {
    ($executor:ident) => {
        $crate::transcript_bindings::export_transcript_of!($executor with_types_in $crate::transcript_bindings);
    };
}

impl<T: Transcript> transcript_bindings::exports::talaria::executor::transcript::Guest for T {
    fn read(query: Query) -> Result<Page, Failure> {
        T::read(query)
    }
}

/// Exports a type that implements [`Executor`] from the component.
#[macro_export]
macro_rules! export {
    ($executor:ident) => {
        $crate::bindings::export_strategy!($executor with_types_in $crate::bindings);
    };
}

impl<T: Executor> bindings::exports::talaria::executor::strategy::Guest for T {
    fn describe() -> Description {
        T::describe()
    }

    fn setup(context: SetupContext) -> Result<(), Failure> {
        T::setup(context)
    }

    fn execute(turn: Turn) -> Result<Outcome, Failure> {
        T::execute(turn)
    }

    fn cancel(turn: Turn, checkpoint: Option<Vec<u8>>) -> Result<(), Failure> {
        T::cancel(turn, checkpoint)
    }
}

/// Parses the settings into the executor's own type.
///
/// # Errors
/// [`FailureKind::InvalidSettings`], naming the setting.
pub fn settings<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json)
        .map_err(|error| Failure::new(FailureKind::InvalidSettings, format!("settings: {error}")))
}

impl Description {
    /// A component without settings, needs and deltas.
    #[must_use]
    pub fn new(name: &str, version: &str, description: &str) -> Self {
        Self {
            name: name.into(),
            display_name: name.into(),
            description: description.into(),
            version: version.into(),
            settings_schema: r#"{"type":"object","additionalProperties":false}"#.into(),
            capabilities: Capabilities::default(),
            idle_timeout_seconds: None,
            streaming: false,
            needs: Needs { egress: Vec::new(), secrets: Vec::new(), callbacks: false },
            metadata: None,
        }
    }
}

#[expect(clippy::derivable_impls, reason = "the type is generated")]
impl Default for Capabilities {
    fn default() -> Self {
        Self {
            heartbeat: false,
            scheduler: false,
            session: false,
            status_mgmt: false,
            retry: false,
            activity_decoration: false,
            channel_dispatch: false,
        }
    }
}

impl Part {
    /// Plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    /// Any content, without a media type, a file name and metadata.
    #[must_use]
    pub fn new(content: Content) -> Self {
        Self { content, media_type: None, filename: None, metadata: None }
    }
}

impl Outcome {
    /// A completed turn with a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(FinalState::Completed, vec![Part::text(text)])
    }

    /// A turn that ended in this state, with these parts.
    #[must_use]
    pub fn new(state: FinalState, parts: Vec<Part>) -> Self {
        Self { state, parts, usage: None, metadata: None }
    }
}

impl Failure {
    /// A failure that a retry would not help.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retryable: false, details: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Settings {
        model: String,
    }

    #[test]
    fn settings_that_do_not_fit_are_named() {
        assert_eq!(settings::<Settings>(r#"{"model":"m"}"#).unwrap(), Settings { model: "m".into() });
        for (json, why) in [
            ("{}", "settings: missing field `model`"),
            (r#"{"model":7}"#, "settings: invalid type: integer `7`, expected a string"),
            ("", "settings: EOF while parsing"),
        ] {
            let failure = settings::<Settings>(json).unwrap_err();
            assert_eq!(failure.kind, FailureKind::InvalidSettings);
            assert!(failure.message.starts_with(why), "{json}: {}", failure.message);
        }
    }

    #[test]
    fn a_component_asks_for_nothing_unless_it_says_so() {
        let description = Description::new("echo", "0.1.0", "Says what it hears");
        assert_eq!(description.display_name, "echo");
        assert!(description.needs.egress.is_empty() && description.needs.secrets.is_empty());
        assert!(!description.needs.callbacks && !description.streaming && !description.capabilities.session);
    }
}
