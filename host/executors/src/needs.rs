//! Compares what a component needs with what it is granted: one row per need, and the lines to add for what is missing.
//!
//! An executor gets only what it declares and the operator grants. A need is granted if every call that it covers is
//! granted; a grant without a need has no row, because it has no effect.
//!
//! Which tools of the host a component calls is not declared: its model chooses. So a component that imports `tools` has a
//! row for each that it is granted, and lacks none.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use talaria_egress::Pattern;
use talaria_engine::{Component, fill_in};

use crate::config::Grant;

/// One need of a component.
#[derive(Debug, Serialize)]
pub struct Need {
    kind: Kind,
    need: String,
    granted: bool,
    /// The line to add to the grant if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    add: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Egress,
    Secret,
    Callbacks,
    #[serde(rename = "wasi_http")]
    WasiHttp,
    Tool,
}

/// Compares all needs of a component with a grant, or with none.
pub fn needs(component: &Component, settings: &Map<String, Value>, grant: Option<&Grant>) -> Vec<Need> {
    let needs = &component.description().needs;
    let patterns = grant.map_or(&[][..], |grant| grant.egress.as_slice());
    // Two needs are one if their settings have the same value.
    let mut seen = HashSet::new();
    let egress = needs.egress.iter().filter_map(|need| match fill_in(need, settings) {
        Ok(pattern) => seen.insert(pattern.clone()).then(|| Need::egress(pattern, patterns)),
        Err(error) => Some(Need::new(Kind::Egress, need, false, Some(error.to_string()))),
    });
    let secrets = needs.secrets.iter().map(|need| {
        let name = &fill_in(need, settings).unwrap_or_else(|_| need.clone());
        let known = grant.is_some_and(|grant| grant.secrets.names().any(|known| known == name));
        let is_set = grant.is_some_and(|grant| grant.secrets.is_set(name));
        Need::new(Kind::Secret, name, is_set, (!known).then(|| format!("secrets = [\"{name}\"]")))
    });
    let callbacks = needs
        .callbacks
        .then(|| Need::flag(Kind::Callbacks, "callbacks", grant.is_some_and(|grant| grant.callbacks)));
    let wasi_http = component
        .uses_wasi_http()
        .then(|| Need::flag(Kind::WasiHttp, "wasi_http", grant.is_some_and(|grant| grant.wasi.http)));
    let tools = grant.filter(|_| component.uses_tools()).map_or(&[][..], |grant| grant.tools.as_slice());
    let tools = tools.iter().map(|name| Need::new(Kind::Tool, name, true, None));
    egress.chain(secrets).chain(callbacks).chain(wasi_http).chain(tools).collect()
}

/// Why an executor can call nothing: its component declares calls, and none of them is granted, not even in part.
pub(crate) fn no_call_granted(
    component: &Component,
    settings: &Map<String, Value>,
    grant: &Grant,
) -> Option<String> {
    let needs = &component.description().needs.egress;
    let filled: Vec<String> = needs.iter().filter_map(|need| fill_in(need, settings).ok()).collect();
    let first = filled.first().or(needs.first())?;
    let mut patterns = filled.iter().filter_map(|need| need.parse::<Pattern>().ok());
    let has_any = patterns.any(|need| grant.egress.iter().any(|granted| granted.meet(&need).is_some()));
    let what = "none of the calls that its component declares is granted";
    (!has_any).then(|| format!("{what}; add egress = [\"{first}\"] and what else `talaria check` lists"))
}

/// The lines of a grant that covers all needs; none if nothing is missing.
pub fn lines(executor: &str, needs: &[Need]) -> Vec<String> {
    if needs.iter().all(|need| need.add.is_none()) {
        return Vec::new();
    }
    let list = |key: &str, kind: Kind| {
        let quoted: Vec<String> =
            needs.iter().filter(|need| need.kind == kind).map(|need| format!("\"{}\"", need.need)).collect();
        (!quoted.is_empty()).then(|| format!("{key} = [{}]", quoted.join(", ")))
    };
    let flags = needs.iter().filter(|need| matches!(need.kind, Kind::Callbacks | Kind::WasiHttp));
    std::iter::once(format!("[executor.{executor}.grant]"))
        .chain(list("egress", Kind::Egress))
        .chain(list("secrets", Kind::Secret))
        .chain(list("tools", Kind::Tool))
        .chain(flags.map(|need| format!("{} = true", need.need)))
        .collect()
}

/// Writes the table.
pub fn write(f: &mut fmt::Formatter<'_>, needs: &[Need]) -> fmt::Result {
    let width = needs.iter().map(|need| need.need.len()).max().unwrap_or_default();
    for need in needs {
        let kind = match need.kind {
            Kind::Egress => "egress",
            Kind::Secret => "secret",
            Kind::Callbacks => "callback",
            Kind::WasiHttp => "wasi",
            Kind::Tool => "tool",
        };
        writeln!(f, "  {kind:<9}  {:<width$}  {}", need.need, need.state())?;
    }
    Ok(())
}

// === impl Need ===

impl Need {
    /// The line to add to the grant, if the need is denied.
    pub fn missing(&self) -> Option<&str> {
        self.add.as_deref()
    }

    fn new(kind: Kind, need: &str, granted: bool, add: Option<String>) -> Self {
        Self { kind, need: need.to_owned(), granted, add }
    }

    fn flag(kind: Kind, need: &str, granted: bool) -> Self {
        Self::new(kind, need, granted, (!granted).then(|| format!("{need} = true")))
    }

    fn egress(need: String, grant: &[Pattern]) -> Self {
        let granted = need.parse::<Pattern>().is_ok_and(|need| grant.iter().any(|grant| grant.covers(&need)));
        let add = (!granted).then(|| format!("egress = [\"{need}\"]"));
        Self { kind: Kind::Egress, need, granted, add }
    }

    /// The state as text. A secret that is granted but not set is not an error: calls are then made without a key.
    fn state(&self) -> String {
        match (self.granted, self.kind, &self.add) {
            (true, ..) => "granted".into(),
            (false, Kind::Secret, None) => "granted, not set".into(),
            (false, _, Some(add)) => format!("denied; add {add}"),
            (false, _, None) => "denied".into(),
        }
    }
}
