//! The standard variables of OpenTelemetry. Traces are off unless one of them asks for them.
//!
//! The specification has a bad value ignored. Here it ends the start, like every other mistake in the configuration:
//! `OTEL_SDK_DISABLED=true` turns traces off where the variables are meant for another process.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use secrecy::SecretString;

use crate::names;
use crate::sampler::Sampler;

/// How spans are recorded and where they are sent.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where they are posted to.
    pub(crate) url: String,
    /// Headers of every post: credentials.
    pub(crate) headers: Vec<(String, SecretString)>,
    /// The longest time for one batch, all attempts together.
    pub(crate) timeout: Duration,
    /// What the spans belong to.
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) sampler: Sampler,
    pub(crate) batch: Batch,
    /// Whether the content of messages is recorded.
    pub content: bool,
}

/// How spans are collected into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The spans that may wait.
    pub(crate) queue: usize,
    /// The spans of a batch.
    pub(crate) size: usize,
    /// How long a span waits for others.
    pub(crate) delay: Duration,
}

/// A variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub struct Invalid {
    /// Its name.
    pub variable: &'static str,
    /// What is wrong, and what to do. The values of headers are not in it.
    pub problem: String,
}

/// The longest queue. A span takes some KiB at most, so this is some hundred MiB if everything is as long as it may be.
const QUEUE: u64 = 65_536;
/// The longest time that a variable may name. An hour: nothing sends later than that on purpose.
const LONGEST: u64 = 3_600_000;
/// The attributes of the resource, and the headers.
const ENTRIES: usize = 64;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

fn invalid(variable: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid { variable, problem: problem.into() }
}

// === impl Config ===

impl Config {
    /// Reads the variables that `get` returns, empty ones taken as unset. `None` if traces are off.
    ///
    /// # Errors
    /// A variable that cannot be used, unless traces are off anyway.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Invalid> {
        let get =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, get(name)?)));
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let is_asked = match get(EXPORTER).as_deref() {
            None => false,
            Some("otlp") => true,
            Some("none") => return Ok(None),
            Some(_) => return Err(invalid(EXPORTER, "the exporters are otlp and none")),
        };
        let url = match (get(TRACES_ENDPOINT), get(ENDPOINT)) {
            (Some(url), _) => endpoint(TRACES_ENDPOINT, &url, "")?,
            (None, Some(base)) => endpoint(ENDPOINT, base.trim_end_matches('/'), "/v1/traces")?,
            (None, None) if is_asked => "http://localhost:4318/v1/traces".to_owned(),
            (None, None) => return Ok(None),
        };
        let protocol = first(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]);
        if let Some((variable, protocol)) = protocol
            && protocol != "http/protobuf"
        {
            let problem = "traces are sent as http/protobuf alone, which collectors take on port 4318; set that, or turn \
                           traces off with OTEL_SDK_DISABLED=true";
            return Err(invalid(variable, problem));
        }
        let headers = first(["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]);
        let headers = headers.map_or(Ok(Vec::new()), |(variable, text)| pairs(variable, &text))?;
        let timeout = match first(["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]) {
            Some((variable, text)) => millis(variable, &text)?,
            None => Duration::from_secs(10),
        };
        let attributes = "OTEL_RESOURCE_ATTRIBUTES";
        let resource = get(attributes).map_or(Ok(Vec::new()), |text| pairs(attributes, &text))?;
        let mut resource: BTreeMap<String, String> = resource.into_iter().collect();
        match get("OTEL_SERVICE_NAME") {
            Some(name) => drop(resource.insert(names::SERVICE.into(), name)),
            None => drop(resource.entry(names::SERVICE.into()).or_insert_with(|| "talaria".into())),
        }
        let sampler = "OTEL_TRACES_SAMPLER";
        let sampler = match get(sampler) {
            Some(name) => Sampler::parse(&name, get("OTEL_TRACES_SAMPLER_ARG").as_deref())
                .map_err(|problem| invalid(sampler, problem))?,
            None => Sampler::default(),
        };
        let content = get(CONTENT).unwrap_or_default().to_ascii_lowercase();
        Ok(Some(Self {
            url,
            headers: headers.into_iter().map(|(name, value)| (name, value.into())).collect(),
            timeout,
            resource,
            sampler,
            batch: Batch::read(get)?,
            content: matches!(content.as_str(), "true" | "1" | "span_only" | "span_and_event"),
        }))
    }

    /// Where spans are sent, for the operator: without what may be a credential.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }

    /// The credentials that every post carries.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.headers.iter().map(|(_, value)| value)
    }
}

// === impl Batch ===

impl Batch {
    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let count = |variable: &'static str, default: u64, most: u64| match get(variable) {
            None => Ok(default.min(most)),
            Some(text) => match text.parse::<u64>() {
                Ok(number) if (1..=most).contains(&number) => Ok(number),
                _ => Err(invalid(variable, format!("give a number from 1 to {most}"))),
            },
        };
        let queue = count("OTEL_BSP_MAX_QUEUE_SIZE", 2_048, QUEUE)?;
        let size = count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, queue)?;
        let delay = "OTEL_BSP_SCHEDULE_DELAY";
        let delay = get(delay).map_or(Ok(Duration::from_secs(5)), |text| millis(delay, &text))?;
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self { queue: number(queue), size: number(size), delay })
    }
}

/// The URL to post to.
fn endpoint(variable: &'static str, base: &str, path: &str) -> Result<String, Invalid> {
    let url = format!("{base}{path}");
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        None => Err(invalid(variable, "give a URL that begins with http:// or https://")),
        Some(rest) if rest.split('/').next().unwrap_or_default().contains('@') => {
            Err(invalid(variable, "the URL has a password; put it into OTEL_EXPORTER_OTLP_HEADERS"))
        }
        Some("") => Err(invalid(variable, "the URL has no host")),
        Some(_) => Ok(url),
    }
}

fn millis(variable: &'static str, text: &str) -> Result<Duration, Invalid> {
    match text.parse::<u64>() {
        Ok(millis) if (1..=LONGEST).contains(&millis) => Ok(Duration::from_millis(millis)),
        _ => Err(invalid(variable, format!("give milliseconds, from 1 to {LONGEST}"))),
    }
}

/// `key=value,key=value`, the values percent-encoded.
fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, Invalid> {
    let mut pairs = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let bad = || invalid(variable, "give key=value,key=value, the values percent-encoded");
        let (key, value) = pair.split_once('=').ok_or_else(bad)?;
        let decode = |text: &str| percent_decode_str(text.trim()).decode_utf8().map(|text| text.into_owned());
        let (Ok(key), Ok(value)) = (decode(key), decode(value)) else { return Err(bad()) };
        if key.is_empty() || pairs.len() == ENTRIES {
            return Err(bad());
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Config>, Invalid> {
        Config::read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn traces_are_off_unless_a_variable_asks_for_them() {
        for off in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x")],
            &[(ENDPOINT, "")],
            &[(ENDPOINT, "http://a"), ("OTEL_SDK_DISABLED", "TRUE"), (EXPORTER, "nonsense")],
            &[(ENDPOINT, "http://a"), (EXPORTER, "none")],
        ] {
            assert!(read(off).unwrap().is_none(), "{off:?}");
        }
        for (on, url) in [
            (&[(EXPORTER, "otlp")][..], "http://localhost:4318/v1/traces"),
            (&[(ENDPOINT, "http://a:1/")], "http://a:1/v1/traces"),
            (&[(ENDPOINT, "https://a/otlp")], "https://a/otlp/v1/traces"),
            (&[(TRACES_ENDPOINT, "http://a/"), (ENDPOINT, "http://b")], "http://a/"),
        ] {
            assert_eq!(read(on).unwrap().expect("on").url, url);
        }
    }

    #[test]
    fn the_variables_of_traces_go_before_those_of_all_signals() {
        let config = read(&[
            (ENDPOINT, "http://a"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x=1"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Basic%20abc%3D, b=2,"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,deployment.environment.name=a%2Cb"),
            ("OTEL_SERVICE_NAME", "bridge"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            (CONTENT, "SPAN_ONLY"),
        ]);
        let config = config.unwrap().unwrap();
        let headers: Vec<_> =
            config.headers.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        assert_eq!(headers, [("authorization", "Basic abc="), ("b", "2")]);
        assert_eq!(config.timeout, Duration::from_millis(2_500));
        assert_eq!(config.resource["service.name"], "bridge");
        assert_eq!(config.resource["deployment.environment.name"], "a,b");
        assert_eq!(config.batch, Batch { queue: 100, size: 100, delay: Duration::from_millis(50) });
        assert!(config.content);
        assert!(!format!("{config:?}").contains("Basic"), "secrets are not printed");
    }

    #[test]
    fn a_bad_value_is_named_and_no_header_is_shown() {
        for (variable, value) in [
            (EXPORTER, "jaeger"),
            (ENDPOINT, "localhost:4318"),
            (ENDPOINT, "http://"),
            (ENDPOINT, "http://me:s3cret-password@a"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret-password"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%ff%fe"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "1000000000"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3000"),
        ] {
            let on = (TRACES_ENDPOINT, "http://ok");
            let variables =
                if variable == ENDPOINT { vec![(variable, value)] } else { vec![on, (variable, value)] };
            let error = read(&variables).expect_err(variable);
            assert_eq!(error.variable, variable, "{value}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
