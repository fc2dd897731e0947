//! The text of metrics, in the format of Prometheus (0.0.4) and in OpenMetrics 1.0.
//!
//! They differ in the names that metadata uses for counters and infos, in the metadata of units, and in the end mark.

use std::fmt::{Display, Write as _};

use super::closed::Closed;
use super::family::{Family, Kind};
use super::number::{Counters, Histogram};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, which every tool reads.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";
const PLAIN: &str = "text/plain";

/// The text so far.
pub(super) struct Page {
    text: String,
    format: Format,
}

/// The samples of one family.
pub(super) struct Samples<'a> {
    page: &'a mut Page,
    family: &'static Family,
}

// === impl Format ===

impl Format {
    /// The format that a request asks for by its `Accept` header: OpenMetrics if it is named, and not after plain text.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut open, mut plain) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
            let quality = quality.unwrap_or(0.0);
            if media.eq_ignore_ascii_case(OPEN_METRICS) {
                open = quality.max(open);
            } else if media.eq_ignore_ascii_case(PLAIN) {
                plain = quality.max(plain);
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

// === impl Page ===

impl Page {
    pub(super) fn new(format: Format) -> Self {
        Self { text: String::with_capacity(64 << 10), format }
    }

    /// Begins a family. Its samples follow before the next one begins.
    pub(super) fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let suffix = match family.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let (name, kind) = match (self.format, family.kind) {
            (Format::OpenMetrics, kind) => (family.name.strip_suffix(suffix).unwrap_or(family.name), kind),
            (Format::Prometheus, Kind::Info) => (family.name, Kind::Gauge),
            (Format::Prometheus, kind) => (family.name, kind),
        };
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {}.\n# TYPE {name} {}", family.help, kind.as_str());
        if let (Format::OpenMetrics, Some(unit)) = (self.format, family.unit()) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        Samples { page: self, family }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

// === impl Samples ===

impl Samples<'_> {
    /// A sample, with the values of the family's labels in their order.
    pub(super) fn value(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A sample for each value of a closed set, which is the last label.
    pub(super) fn counters<L: Closed>(&mut self, label: &str, counters: &Counters<L>) {
        for (name, count) in counters.all() {
            self.value(&[label, name], count);
        }
    }

    pub(super) fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        let mut count = 0;
        for (bound, so_far) in histogram.buckets() {
            count = so_far;
            match bound {
                Some(bound) => self.line("_bucket", labels, Some(&bound), so_far),
                None => self.line("_bucket", labels, Some(&f64::INFINITY), so_far),
            }
        }
        self.line("_sum", labels, None, Float(histogram.sum()));
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], bound: Option<&f64>, value: impl Display) {
        debug_assert_eq!(labels.len(), self.family.labels.len(), "{}", self.family.name);
        let text = &mut self.page.text;
        text.push_str(self.family.name);
        text.push_str(suffix);
        let mut separator = '{';
        for (label, value) in self.family.labels.iter().zip(labels) {
            text.push(separator);
            text.push_str(label.name);
            text.push_str("=\"");
            escape(text, value);
            text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(text, "{separator}le=\"{}\"", Float(*bound));
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// A number as both formats want it.
pub(super) struct Float(pub(super) f64);

impl Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            number => write!(f, "{number:?}"),
        }
    }
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}
