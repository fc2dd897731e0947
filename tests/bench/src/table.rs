//! The table of measurements and targets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All rows of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    cores: usize,
    rows: Vec<Row>,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: &'static str,
    measured: f64,
    unit: &'static str,
    better: Better,
    target: Option<Target>,
    /// Whether the target was met; `None` without a target.
    ok: Option<bool>,
    /// How the value was measured.
    note: String,
}

/// The target of a row.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Under(f64),
}

/// Which of two values of a row is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    Less,
    More,
    /// Neither: the value explains another one.
    Neither,
}

// === impl Row ===

impl Row {
    /// A row with a target.
    pub(crate) fn new(name: &'static str, measured: f64, unit: &'static str, target: Target) -> Self {
        let ok = match target {
            Target::AtLeast(least) => measured >= least,
            Target::AtMost(most) => measured <= most,
            Target::Under(most) => measured < most,
        };
        let better = if matches!(target, Target::AtLeast(_)) { Better::More } else { Better::Less };
        let target = Some(target);
        Self { better, target, ok: Some(ok), ..Self::plain(name, measured, unit) }
    }

    /// A row without a target, which explains another one; less is better.
    pub(crate) fn plain(name: &'static str, measured: f64, unit: &'static str) -> Self {
        Self { name, measured, unit, better: Better::Less, target: None, ok: None, note: String::new() }
    }

    /// A row whose value is neither good nor bad.
    pub(crate) fn neutral(name: &'static str, measured: f64, unit: &'static str) -> Self {
        Self { better: Better::Neither, ..Self::plain(name, measured, unit) }
    }

    /// More is better.
    pub(crate) fn more_is_better(self) -> Self {
        Self { better: Better::More, ..self }
    }

    /// Adds how the value was measured.
    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

// === impl Table ===

impl Table {
    pub(crate) fn new() -> Self {
        Self { cores: std::thread::available_parallelism().map_or(0, usize::from), rows: Vec::new() }
    }

    pub(crate) fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "one run on {} cores; compare the ratios, not the numbers of two runs\n", self.cores)?;
        writeln!(f, "{:<58} {:>14} {:>12}  {:<6}  how", "what", "measured", "target", "")?;
        for row in &self.rows {
            let target = row.target.map(|target| match target {
                Target::AtLeast(least) => format!(">= {}", short(least)),
                Target::AtMost(most) => format!("<= {}", short(most)),
                Target::Under(most) => format!("< {}", short(most)),
            });
            let verdict = match row.ok {
                Some(true) => "ok",
                Some(false) => "MISSED",
                None => "",
            };
            let measured = format!("{} {}", short(row.measured), row.unit);
            let target = target.unwrap_or_default();
            writeln!(
                f,
                "{:<58} {:>14} {:>12}  {verdict:<6}  {}",
                row.name,
                measured.trim_end(),
                target,
                row.note
            )?;
        }
        Ok(())
    }
}

/// Formats with three significant digits, or all digits of a large number.
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Returns the median; 0 for an empty list.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    quantile(numbers, 0.5)
}

/// Returns the number below which this part of the numbers lies.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index of some thousands"
)]
pub(crate) fn quantile(numbers: &mut [f64], part: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let index = (numbers.len().saturating_sub(1) as f64 * part).round() as usize;
    numbers.get(index).copied().unwrap_or_default()
}
