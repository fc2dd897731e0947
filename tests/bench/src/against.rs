//! This tree compared with another one: every row with the values of both, from alternating rounds.
//!
//! Each round of a part is a run of a benchmark of its own, once with each binary, so that nothing is left over from one to
//! the next. The bridge's binary is the only difference where a part measures a bridge. A part that measures inside the
//! benchmark is compared only with the other tree's benchmark, which has the other tree's engine in it.
//!
//! A difference counts if the ranges of the two do not overlap. A run that fails is reported, and its rows are missing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::What;
use crate::table::{Better, median, short};

/// What is compared.
pub(crate) struct Against<'a> {
    /// This tree's bridge and the other one's.
    pub(crate) talaria: &'a Path,
    pub(crate) other: &'a Path,
    /// The other tree's benchmark.
    pub(crate) other_bench: Option<&'a Path>,
    pub(crate) rounds: usize,
    pub(crate) turns: usize,
}

/// The rows of both.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Comparison {
    rows: Vec<Compared>,
    /// What could not be compared, and why.
    missing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Compared {
    name: String,
    unit: String,
    better: Better,
    here: Vec<f64>,
    other: Vec<f64>,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// The ranges overlap, or no value of the row is the better one.
    Same,
    Better,
    Worse,
}

/// A program to run and the bridge that it measures.
struct Side {
    bench: PathBuf,
    talaria: PathBuf,
}

/// What a benchmark prints; the other tree's may know less.
#[derive(Deserialize)]
struct Printed {
    rows: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    name: String,
    measured: f64,
    unit: String,
    better: Option<Better>,
}

/// The values of a row, of this tree and the other.
struct Values {
    unit: String,
    better: Better,
    both: [Vec<f64>; 2],
}

impl Against<'_> {
    /// Measures these parts.
    pub(crate) fn measure(&self, parts: &[What]) -> Result<Comparison> {
        ensure!(self.rounds > 1, "one round has no spread to compare with; use `--rounds 2` or more");
        let mut comparison = Comparison::default();
        for part in parts {
            let name = part.to_possible_value().context("a part without a name")?.get_name().to_owned();
            match self.sides(*part)? {
                Some(sides) => self.rounds(&name, &sides, &mut comparison),
                None => comparison.missing.push(format!(
                    "{name}: it measures inside the benchmark; name the other tree's with `--against-bench`"
                )),
            }
        }
        Ok(comparison)
    }

    fn sides(&self, part: What) -> Result<Option<[Side; 2]>> {
        let here = std::env::current_exe()?;
        let other = if part.is_inside() { self.other_bench } else { Some(here.as_path()) };
        Ok(other.map(|other| {
            [(here.as_path(), self.talaria), (other, self.other)]
                .map(|(bench, talaria)| Side { bench: bench.to_owned(), talaria: talaria.to_owned() })
        }))
    }

    fn rounds(&self, part: &str, sides: &[Side; 2], comparison: &mut Comparison) {
        let (mut order, mut values) = (Vec::new(), BTreeMap::<String, Values>::new());
        for round in 0..self.rounds {
            // Neither is always the first.
            let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for which in turns {
                let Some(side) = sides.get(which) else { continue };
                let (rows, failure) = side.run(part, self.turns);
                let whose = if which == 0 { "this tree" } else { "the other" };
                comparison.missing.extend(failure.map(|why| format!("{part}, {whose}: {why:#}")));
                for Measured { name, measured, unit, better } in rows {
                    if !values.contains_key(&name) {
                        order.push(name.clone());
                    }
                    let values = values.entry(name).or_insert_with(|| Values {
                        unit,
                        better: Better::Less,
                        both: [Vec::new(), Vec::new()],
                    });
                    values.better = better.unwrap_or(values.better);
                    values.both.get_mut(which).into_iter().for_each(|all| all.push(measured));
                }
            }
        }
        for name in order {
            let Some(Values { unit, better, both: [here, other] }) = values.remove(&name) else { continue };
            let verdict = verdict(better, &here, &other);
            comparison.rows.push(Compared { name, unit, better, here, other, verdict });
        }
    }
}

/// Whether the values of this tree are beyond the range of the other's.
fn verdict(better: Better, here: &[f64], other: &[f64]) -> Verdict {
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |of: &[f64]| of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if here.is_empty() || other.is_empty() || better == Better::Neither {
        return Verdict::Same;
    }
    let (above, below) = (least(here) > most(other), most(here) < least(other));
    match (better, above, below) {
        (Better::More, true, _) | (Better::Less, _, true) => Verdict::Better,
        (Better::More, _, true) | (Better::Less, true, _) => Verdict::Worse,
        _ => Verdict::Same,
    }
}

// === impl Side ===

impl Side {
    /// Runs a part. Returns its rows, also those before a failure.
    fn run(&self, part: &str, turns: usize) -> (Vec<Measured>, Option<anyhow::Error>) {
        let mut command = Command::new(&self.bench);
        command.args(["--output", "json", "--only", part, "--turns", &turns.to_string(), "--talaria"]);
        command.arg(&self.talaria);
        let ended = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
        let ended = ended.with_context(|| format!("cannot start {}", self.bench.display()));
        let ended = match ended {
            Ok(ended) => ended,
            Err(why) => return (Vec::new(), Some(why)),
        };
        let rows = serde_json::from_slice(&ended.stdout).map_or_else(|_| Vec::new(), |Printed { rows }| rows);
        let failed = !ended.status.success();
        let said = String::from_utf8_lossy(&ended.stderr);
        let why = said.lines().find(|line| line.starts_with("Error:")).unwrap_or("it failed").to_owned();
        (rows, failed.then(|| anyhow::Error::msg(why)))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "every round of both; a verdict only where the ranges do not overlap\n")?;
        writeln!(f, "{:<58} {:>8} {:>26} {:>26} {:>7}  verdict", "what", "unit", "here", "other", "ratio")?;
        for row in &self.rows {
            let Compared { name, unit, here, other, .. } = row;
            let all = |of: &[f64]| of.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ");
            let middle = |of: &[f64]| median(&mut of.to_vec());
            let ratio = match middle(other) {
                other if other.abs() > f64::EPSILON && !here.is_empty() => short(middle(here) / other),
                _ => String::new(),
            };
            let verdict = match row.verdict {
                Verdict::Same => "",
                Verdict::Better => "better",
                Verdict::Worse => "WORSE beyond the spread",
            };
            writeln!(f, "{name:<58} {unit:>8} {:>26} {:>26} {ratio:>7}  {verdict}", all(here), all(other))?;
        }
        for missing in &self.missing {
            writeln!(f, "not compared: {missing}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_only_beyond_the_spread() {
        for (better, here, other, expected) in [
            (Better::Less, &[3.0, 4.0][..], &[1.0, 2.0][..], Verdict::Worse),
            (Better::Less, &[1.0, 2.0], &[3.0, 4.0], Verdict::Better),
            (Better::More, &[3.0, 4.0], &[1.0, 2.0], Verdict::Better),
            (Better::More, &[1.0, 2.0], &[3.0, 4.0], Verdict::Worse),
            (Better::Less, &[2.0, 4.0], &[1.0, 2.0], Verdict::Same),
            (Better::Less, &[9.0, 1.5], &[1.0, 2.0], Verdict::Same),
            (Better::Neither, &[3.0], &[1.0], Verdict::Same),
            (Better::Less, &[], &[1.0], Verdict::Same),
        ] {
            assert_eq!(verdict(better, here, other), expected, "{better:?} {here:?} {other:?}");
        }
    }

    #[test]
    fn a_run_that_fails_is_reported_and_leaves_no_rows() {
        let side = Side { bench: "/bin/false".into(), talaria: PathBuf::new() };
        let (rows, why) = side.run("load", 1);
        assert!(rows.is_empty() && why.is_some());
    }

    #[test]
    fn rows_of_an_older_benchmark_are_read() {
        let text = r#"{ "cores": 2, "rows": [{ "name": "a", "measured": 1.5, "unit": "ms", "target": null, "ok": null, "note": "" }] }"#;
        let Printed { rows } = serde_json::from_str(text).unwrap();
        assert!(rows.iter().all(|row| row.name == "a" && row.better.is_none()) && rows.len() == 1);
    }
}
