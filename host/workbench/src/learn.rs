//! `talaria executor test --learn`: finds the smallest grant that an executor needs, by denial.
//!
//! The trial starts with an empty grant. Each denied call is granted exactly as it was made (method, address and path), and
//! the trial runs again until it makes no new call. So there is no mode that allows everything, and the result is what
//! the policy itself asked for.
//!
//! A path is widened only where necessary: a segment that is an id of the turn, or that came from a response of the
//! upstream, differs next time, so the pattern ends before it with `*`. A secret is bound to the calls that name it, unless
//! all of them do.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use talaria_egress::{Call, Pattern, Secrets};

use crate::report::Report;
use crate::trial::Trial;

/// The most rounds; no executor makes that many calls that build on each other.
const ROUNDS: usize = 16;
/// The shortest path segment that counts as an id, in bytes. A shorter one may equal a word of the upstream by chance.
const SHORTEST_ID: usize = 4;

/// The smallest grant, in the form of the executor's file.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct LearnedGrant {
    egress: Vec<String>,
    secrets: Vec<Bound>,
    callbacks: bool,
}

/// A secret and the calls that name it; empty if all calls do.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Bound {
    name: String,
    to: Vec<String>,
}

/// Runs the trial until it needs no larger grant. Returns the grant and the last report.
pub async fn learn(trial: &mut Trial) -> (LearnedGrant, Report) {
    let mut egress: Vec<Pattern> = Vec::new();
    let mut named: BTreeSet<String> = BTreeSet::new();
    grant(trial, &egress, &named);
    let mut round = 0;
    loop {
        let report = Box::pin(trial.run()).await;
        let calls = trial.timeline.calls();
        let before = (egress.len(), named.len(), trial.executor.grant.callbacks);
        if let Some(needs) = &report.needs {
            // An executor that first checks whether it has a secret must find it, or it never names it.
            named.extend(needs.secrets.iter().cloned());
            trial.executor.grant.callbacks |= needs.callbacks;
        }
        for call in &calls {
            named.extend(call.secrets.iter().cloned());
            if let Some(pattern) = call.pattern.as_ref().filter(|pattern| !egress.contains(pattern)) {
                egress.push(pattern.clone());
            }
        }
        round += 1;
        let callbacks = trial.executor.grant.callbacks;
        if (egress.len(), named.len(), callbacks) == before || round == ROUNDS {
            let ids =
                trial.ids().into_iter().chain(trial.cassette.iter().flat_map(|cassette| {
                    cassette.exchanges.iter().flat_map(crate::cassette::Exchange::texts)
                }));
            return (LearnedGrant::of(&calls, &ids.collect(), callbacks), report);
        }
        grant(trial, &egress, &named);
    }
}

fn grant(trial: &mut Trial, egress: &[Pattern], named: &BTreeSet<String>) {
    let mut secrets = Secrets::new();
    for name in named {
        // A name that is not valid for a secret stays denied, and the report says why.
        let _ = secrets.insert(name.as_str(), trial.secret.clone(), egress.to_vec());
    }
    trial.executor.grant.egress = egress.to_vec();
    trial.executor.grant.secrets = secrets;
}

// === impl LearnedGrant ===

impl LearnedGrant {
    fn of(calls: &[Call], ids: &BTreeSet<String>, callbacks: bool) -> Self {
        let mut learned = Self { callbacks, ..Self::default() };
        for call in calls {
            let Some(pattern) = &call.pattern else { continue };
            let pattern = widened(&pattern.to_string(), ids);
            if !learned.egress.contains(&pattern) {
                learned.egress.push(pattern.clone());
            }
            for name in &call.secrets {
                match learned.secrets.iter_mut().find(|bound| bound.name == *name) {
                    Some(bound) if bound.to.contains(&pattern) => {}
                    Some(bound) => bound.to.push(pattern.clone()),
                    None => learned.secrets.push(Bound { name: name.clone(), to: vec![pattern.clone()] }),
                }
            }
        }
        // Sorted by name, because concurrent calls of a component arrive in any order.
        learned.egress.sort();
        learned.secrets.sort_by(|one, other| one.name.cmp(&other.name));
        for bound in &mut learned.secrets {
            bound.to.sort();
            if bound.to.len() == learned.egress.len() {
                bound.to.clear();
            }
        }
        learned
    }
}

/// Cuts a pattern at the first path segment that differs from turn to turn.
fn widened(pattern: &str, ids: &BTreeSet<String>) -> String {
    let path = pattern.find("://").and_then(|at| Some(at + 3 + pattern.get(at + 3..)?.find('/')?));
    let Some((origin, path)) = path.and_then(|at| pattern.split_at_checked(at)) else {
        return pattern.to_owned();
    };
    let mut kept = String::new();
    for step in path.split('/').skip(1) {
        let is_id = step.len() >= SHORTEST_ID && step.bytes().any(|byte| byte.is_ascii_digit());
        if is_id && ids.contains(step) {
            return format!("{origin}{kept}/*");
        }
        kept.push('/');
        kept.push_str(step);
    }
    pattern.to_owned()
}

impl fmt::Display for LearnedGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |texts: &[String]| {
            let texts: Vec<String> =
                texts.iter().map(|text| serde_json::Value::from(text.as_str()).to_string()).collect();
            texts.join(", ")
        };
        write!(f, "[grant]\negress = [")?;
        for pattern in &self.egress {
            write!(f, "\n  {},", quoted(std::slice::from_ref(pattern)))?;
        }
        let end = if self.egress.is_empty() { "]" } else { "\n]" };
        write!(f, "{end}\nsecrets = [")?;
        for Bound { name, to } in &self.secrets {
            match to.as_slice() {
                [] => write!(f, "\n  {},", quoted(std::slice::from_ref(name)))?,
                to => write!(
                    f,
                    "\n  {{ name = {}, to = [{}] }},",
                    quoted(std::slice::from_ref(name)),
                    quoted(to)
                )?,
            }
        }
        f.write_str(if self.secrets.is_empty() { "]" } else { "\n]" })?;
        if self.callbacks {
            f.write_str("\ncallbacks = true")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn call(pattern: &str, secrets: &[&str]) -> Call {
        Call {
            whole: true,
            method: String::new(),
            url: String::new(),
            sent: 0,
            secrets: secrets.iter().map(ToString::to_string).collect(),
            pattern: Some(pattern.parse().unwrap()),
            began: Instant::now(),
            result: None,
        }
    }

    #[test]
    fn widens_a_path_only_at_an_id() {
        let ids = BTreeSet::from(["run_81f2".to_owned(), "v1".to_owned(), "completed".to_owned()]);
        for (pattern, learnt) in [
            ("POST https://a.example/v1/runs", "POST https://a.example/v1/runs"),
            ("GET https://a.example/v1/runs/run_81f2/events", "GET https://a.example/v1/runs/*"),
            ("GET https://a.example/v1/completed", "GET https://a.example/v1/completed"),
            ("GET https://a.example/", "GET https://a.example/"),
        ] {
            assert_eq!(widened(pattern, &ids), learnt);
        }
    }

    #[test]
    fn binds_a_secret_that_not_every_call_names() {
        let calls = [
            call("POST https://a.example/x", &["A", "B"]),
            call("POST https://a.example/x", &["A", "B"]),
            call("GET https://b.example/", &["B"]),
        ];
        let learned = LearnedGrant::of(&calls, &BTreeSet::new(), false);
        assert_eq!(
            learned.to_string(),
            "[grant]\negress = [\n  \"GET https://b.example/\",\n  \"POST https://a.example/x\",\n]\n\
             secrets = [\n  { name = \"A\", to = [\"POST https://a.example/x\"] },\n  \"B\",\n]"
        );
        assert_eq!(LearnedGrant::default().to_string(), "[grant]\negress = []\nsecrets = []");
    }
}
