//! `docs/metrics.md`, from the registry.

use std::fmt::Write as _;

use super::family::{Kind, Values};
use super::registry::Registry;

const HEAD: &str = "# Metrics\n\n\
<!-- Generated from host/observe/src/metrics; `TALARIA_BLESS=1 cargo test --workspace --lib metrics` writes it. -->\n\n\
`GET /metrics` on `admin.listen` answers in Prometheus' text format 0.0.4, and in OpenMetrics 1.0 if `Accept` names\n\
`application/openmetrics-text`, as Prometheus does. Labels are closed sets: the values listed here, and names that you\n\
configured. No id, and nothing that a caller or a component says, becomes a label.\n\n\
A histogram has the series `_bucket` (with the label `le`), `_sum` and `_count`. Times of turns have buckets from 0.5 ms to\n\
600 s, times of requests and of the store from 50 µs to 5 s. [`examples/observe`](../examples/observe) has a dashboard, alert\n\
rules and the scrape configuration.\n";

/// The page.
pub(super) fn page(registry: &Registry) -> String {
    let mut page = HEAD.to_owned();
    for source in registry.sources() {
        let _ = write!(
            page,
            "\n## {}\n\n| metric | type | labels | what it is | question |\n|---|---|---|---|---|\n",
            source.title()
        );
        for family in source.families() {
            let labels = family.labels.iter().map(|label| match label.values {
                Values::Closed(values) => {
                    let values = values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>();
                    format!("`{}`: {}", label.name, values.join(", "))
                }
                Values::Named(what) => format!("`{}`: {what}", label.name),
            });
            let labels = labels.collect::<Vec<_>>().join("<br>");
            let kind = if family.kind == Kind::Info { "info" } else { family.kind.as_str() };
            let _ = writeln!(
                page,
                "| `{}` | {kind} | {labels} | {} | {} |",
                family.name, family.help, family.question
            );
        }
    }
    page
}
