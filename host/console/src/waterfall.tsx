// Where the time of a turn went: a bar for the queue, for the wait for an instance, for the guest, and for each step, on one scale.
// The same numbers are in the cells of the table, so nothing is only in the picture.
import { useEffect, useState } from "preact/hooks";
import { bytes, ms } from "./format";
import { Text } from "./text";
import type { Step, Timeline, TurnDetail } from "./types";
import { Copy } from "./ui";

type Events = NonNullable<TurnDetail["events"]>;

interface Bar {
  key: string;
  kind: string;
  name: string;
  start: number;
  took: number | null;
  detail?: string;
  step?: Step;
}

const TICK = 100;

/** The line of policy that would allow a denied call. */
export function grantOf(error: string | null): string | null {
  const found = /grant it with (.+?)(?:;|$)/s.exec(error ?? "");
  return found?.[1]?.trim() ?? null;
}

export function Waterfall({ timeline, events }: { timeline: Timeline; events: Events }) {
  const runs = timeline.state === "running" || timeline.state === "queued";
  const [seen, setSeen] = useState(() => ({ at: performance.now(), total: timeline.total_ms }));
  const [time, setTime] = useState(performance.now());
  useEffect(() => setSeen({ at: performance.now(), total: timeline.total_ms }), [timeline]);
  useEffect(() => {
    if (!runs) return;
    const clock = setInterval(() => setTime(performance.now()), TICK);
    return () => clearInterval(clock);
  }, [runs]);
  const end = runs ? seen.total + Math.max(0, time - seen.at) : timeline.total_ms;
  const total = Math.max(end, 0.01);
  const bars = barsOf(timeline, end);
  const accepted = new Date(timeline.accepted).getTime();
  const marks = events
    .map((event) => ({ ...event, after: new Date(event.at).getTime() - accepted }))
    .filter((event) => event.after >= -1 && event.after <= end + 50);
  const x = (value: number) => `${Math.min(100, Math.max(0, (100 * value) / total))}%`;
  return (
    <div class="waterfall">
      <div class="wf-scale num" aria-hidden="true">
        <span class="wf-name" />
        <span class="wf-track">
          {[0, 0.25, 0.5, 0.75, 1].map((part) => (
            <span key={part} class="wf-tick" style={{ left: `${part * 100}%` }}>
              {ms(part * total)}
            </span>
          ))}
        </span>
        <span class="wf-took" />
      </div>
      <ol>
        {bars.map((bar) => (
          <Row key={bar.key} bar={bar} end={end} x={x} first={timeline.first_text_ms} />
        ))}
        {marks.length > 0 && (
          <li class="wf-row">
            <span class="wf-name">
              <span class="wf-kind">events</span>
              <span class="muted num">{marks.length}</span>
            </span>
            <span class="wf-track" aria-hidden="true">
              {marks.map((mark) => (
                <span key={mark.sequence} class={`wf-mark wf-mark-${mark.kind}`} style={{ left: x(mark.after) }} title={`${mark.kind} at ${ms(mark.after)}`} />
              ))}
            </span>
            <span class="wf-took" />
          </li>
        )}
        <li class="wf-row wf-outcome">
          <span class="wf-name">
            <span class="wf-kind">{runs ? "now" : "outcome"}</span>
            <Text of={timeline.state} />
          </span>
          <span class="wf-track" aria-hidden="true">
            <span class={`wf-end wf-end-${timeline.state}`} style={{ left: x(end) }} />
          </span>
          <span class="wf-took num">{ms(end)}</span>
        </li>
      </ol>
      {timeline.omitted ? <p class="muted small-text">{timeline.omitted} more steps are not recorded.</p> : null}
      {timeline.first_text_ms !== null && (
        <p class="muted small-text">
          <span class="wf-first-key" aria-hidden="true" /> first text of the answer at <span class="num">{ms(timeline.first_text_ms)}</span>
        </p>
      )}
    </div>
  );
}

function barsOf(timeline: Timeline, end: number): Bar[] {
  const queued = timeline.queued_ms ?? (timeline.state === "queued" ? end : timeline.total_ms);
  const began = queued + timeline.waited_ms;
  const bars: Bar[] = [{ key: "queue", kind: "queued", name: "behind the turns of its context", start: 0, took: queued }];
  if (timeline.queued_ms !== null) {
    if (timeline.waited_ms > 0) bars.push({ key: "wait", kind: "waited", name: "for an instance of its executor", start: queued, took: timeline.waited_ms });
    const guest = timeline.state === "running" ? null : Math.max(0, end - began);
    bars.push({ key: "guest", kind: "guest", name: timeline.executor, start: began, took: guest, detail: `computed ${ms(timeline.guest_ms)}` });
  }
  for (const step of timeline.steps ?? []) {
    bars.push({ key: `step ${step.number}`, kind: step.kind, name: step.name, start: step.began_ms, took: step.took_ms, step });
  }
  return bars;
}

function Row({ bar, end, x, first }: { bar: Bar; end: number; x: (value: number) => string; first: number | null }) {
  const { step } = bar;
  const took = bar.took ?? Math.max(0, end - bar.start);
  const bad = step?.denied ? "denied" : step && (step.error || (step.status ?? 0) >= 400) ? "failed" : "";
  const line = step?.denied ? grantOf(step.error) : null;
  return (
    <li class={`wf-row ${bad ? `wf-${bad}` : ""}`}>
      <span class="wf-name">
        <span class="wf-kind">{bar.kind}</span>
        <span class="wf-what" title={bar.name}>
          <Text of={bar.name} />
        </span>
      </span>
      <span class="wf-track" aria-hidden="true">
        {first !== null && <span class="wf-first" style={{ left: x(first) }} />}
        <span class={`wf-bar wf-bar-${bar.kind} ${bar.took === null ? "wf-open" : ""}`} style={{ left: x(bar.start), width: x(took) }} />
      </span>
      <span class="wf-took num">
        <span class="sr-only">began at {ms(bar.start)}, took </span>
        {ms(took)}
      </span>
      {(step || bar.detail) && (
        <span class="wf-more">
          {bar.detail && <span class="muted num">{bar.detail}</span>}
          {step?.denied && <span class="tag tag-bad">denied</span>}
          {step?.status != null && <span class={`tag num ${step.status >= 400 ? "tag-bad" : ""}`}>{step.status}</span>}
          {step && (step.sent > 0 || step.received > 0) && (
            <span class="muted num">
              {bytes(step.sent)} sent, {bytes(step.received)} received
            </span>
          )}
          {step && step.took_ms === null && <span class="muted">under way</span>}
          {step?.error && (
            <span class="why">
              <Text of={step.error} />
            </span>
          )}
          {line && (
            <span class="grant">
              <span class="muted">allow it in the executor's grant:</span> <code class="break"><Text of={line} /></code> <Copy text={line} label="Copy line" />
            </span>
          )}
        </span>
      )}
    </li>
  );
}
