//! The timeline of a turn as an aligned waterfall in text.
//!
//! Each line has a bar on one scale from the acceptance of the message to the end of the turn:
//!
//! ```text
//! queued                          |=                             |  12 ms
//! running                         | =============================|  1.2 s
//!   call POST http://host/path    |   ==================         |  640 ms  200, 1.2 KiB sent, 3.4 KiB received
//! ```

use std::fmt::Write as _;

use serde_json::Value;

use super::{line, number, size, text, time};

/// The columns of a bar, and the most of a name.
const BAR: usize = 40;
const NAME: usize = 60;

struct Bar {
    name: String,
    began: f64,
    took: Option<f64>,
    note: String,
}

pub(super) fn waterfall(timeline: &Value) -> String {
    let total = number(timeline, "/total_ms");
    let mut bars = Vec::new();
    let queued = timeline.get("queued_ms").and_then(Value::as_f64);
    bars.push(Bar { name: "queued".into(), began: 0.0, took: queued, note: String::new() });
    if let Some(queued) = queued {
        let state = text(timeline, "/state").to_owned();
        bars.push(Bar { name: "executor".into(), began: queued, took: Some(total - queued), note: state });
    }
    let steps = timeline.get("steps").and_then(Value::as_array);
    for step in steps.into_iter().flatten() {
        let name = format!("  {} {}", text(step, "/kind"), text(step, "/name"));
        let began = number(step, "/began_ms");
        let took = step.get("took_ms").and_then(Value::as_f64);
        bars.push(Bar { name: line(&name, NAME), began, took, note: note(step) });
    }
    let width = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or_default();
    let mut drawn = head(timeline, total);
    for Bar { name, began, took, note } in bars {
        let drawing = draw(began, took.unwrap_or(total - began), total);
        let took = took.map_or_else(|| "under way".to_owned(), time);
        let _ = write!(drawn, "\n{name:<width$}  |{drawing}|  {took:>9}  {note}");
        drawn.truncate(drawn.trim_end().len());
    }
    if number(timeline, "/omitted") > 0.0 {
        let _ = write!(drawn, "\n  and {} further steps", number(timeline, "/omitted"));
    }
    drawn
}

/// The line above the bars.
fn head(timeline: &Value, total: f64) -> String {
    let mut head = format!("{} {}", line(text(timeline, "/executor"), 40), text(timeline, "/version"));
    let _ = write!(head, "  {} in {}", text(timeline, "/state"), time(total));
    for (name, key) in [("guest", "guest_ms"), ("upstream", "upstream_ms"), ("first text", "first_text_ms")] {
        if let Some(millis) = timeline.get(key).and_then(Value::as_f64) {
            let _ = write!(head, ", {name} {}", time(millis));
        }
    }
    let (input, output) = (number(timeline, "/tokens/input"), number(timeline, "/tokens/output"));
    if input + output > 0.0 {
        let _ = write!(head, ", tokens {input} in {output} out");
    }
    if number(timeline, "/memory_bytes") > 0.0 {
        let _ = write!(head, ", memory {}", size(number(timeline, "/memory_bytes")));
    }
    let reason = text(timeline, "/reason");
    if !reason.is_empty() {
        let _ = write!(head, "\n{}: {}", text(timeline, "/failure"), line(reason, 200));
    }
    head
}

fn note(step: &Value) -> String {
    let mut notes = Vec::new();
    if let Some(status) = step.get("status").and_then(Value::as_u64) {
        notes.push(status.to_string());
    }
    for (name, key) in [("sent", "/sent"), ("received", "/received")] {
        let bytes = number(step, key);
        if bytes > 0.0 {
            notes.push(format!("{} {name}", size(bytes)));
        }
    }
    if step.get("denied") == Some(&Value::Bool(true)) {
        notes.push("DENIED".into());
    }
    let error = text(step, "/error");
    if !error.is_empty() {
        notes.push(line(error, 200));
    }
    notes.join(", ")
}

/// A bar on the scale of the turn; at least one mark.
fn draw(began: f64, took: f64, total: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the width of a bar"
    )]
    let column = |at: f64| {
        let part = if total > 0.0 { (at / total).clamp(0.0, 1.0) } else { 0.0 };
        (part * BAR as f64).round() as usize
    };
    let begin = column(began).min(BAR - 1);
    let end = column(began + took).clamp(begin + 1, BAR);
    format!("{}{}{}", " ".repeat(begin), "=".repeat(end - begin), " ".repeat(BAR - end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_waterfall_is_aligned_and_names_what_was_denied() {
        let timeline = json!({
            "executor": "chat", "version": "1.0", "state": "failed", "total_ms": 1_000.0, "queued_ms": 100.0,
            "guest_ms": 3.0, "upstream_ms": 500.0, "first_text_ms": null, "memory_bytes": 1_048_576,
            "tokens": { "input": 7, "output": 9 }, "reason": "down\nand out", "failure": "upstream", "omitted": 2,
            "steps": [
                { "kind": "call", "name": "POST http://a/b", "began_ms": 200.0, "took_ms": 500.0, "status": 503,
                  "sent": 10, "received": 2_048, "denied": false, "error": null },
                { "kind": "call", "name": "GET http://c/", "began_ms": 900.0, "took_ms": 0.1, "status": null,
                  "sent": 0, "received": 0, "denied": true, "error": "add egress = [\"GET http://c/\"]" },
                { "kind": "tool", "name": "x", "began_ms": 950.0, "took_ms": null, "status": null,
                  "sent": 0, "received": 0, "denied": false, "error": null },
            ],
        });
        let drawn = waterfall(&timeline);
        let expected = "\
chat 1.0  failed in 1.0 s, guest 3.0 ms, upstream 500 ms, tokens 7 in 9 out, memory 1.0 MiB
upstream: down and out
queued                  |====                                    |     100 ms
executor                |    ====================================|     900 ms  failed
  call POST http://a/b  |        ====================            |     500 ms  503, 10 B sent, 2.0 KiB received
  call GET http://c/    |                                    =   |     0.1 ms  DENIED, add egress = [\"GET http://c/\"]
  tool x                |                                      ==|  under way
  and 2 further steps";
        assert_eq!(drawn, expected, "\n{drawn}");
    }

    #[test]
    fn nonsense_is_drawn_too() {
        for timeline in [json!({}), json!(null), json!({ "total_ms": -1, "queued_ms": 5, "steps": [{}, 3] })]
        {
            assert!(waterfall(&timeline).contains("queued"), "{timeline}");
        }
    }
}
