// The state of the bridge at a glance: whether it is ready and why not, what it runs, how much and how fast.
import { useMemo } from "preact/hooks";
import { Chart, Spark } from "./chart";
import { ago, bytes, count, ms, short, span } from "./format";
import { connection, executors, now, stats, status, trouble } from "./live";
import { href } from "./route";
import { Text } from "./text";
import { NothingYet } from "./turns";
import type { Bucket, Executor, Readiness, Status } from "./types";
import { Copy, Empty, Facts, Failed, Heading, Panel, State } from "./ui";

export function Overview() {
  const known = status.value;
  return (
    <>
      <Heading>Overview</Heading>
      {!known && (trouble.value ? <Failed what={trouble.value} /> : <Empty>Asking the bridge …</Empty>)}
      {known && <Ready status={known} />}
      {known && <Numbers status={known} />}
      <Cards />
      <Charts />
      {known && <About status={known} />}
    </>
  );
}

function reasons(status: Status): string[] {
  const report = status.readiness;
  if (!report) return [];
  const found: string[] = [];
  if (report.reason) found.push(report.reason);
  if (report.draining) found.push("it is stopping and accepts no more turns");
  if (report.store && report.store.state !== "ready") found.push(`store: ${report.store.reason}`);
  for (const [name, state] of Object.entries(report.executors ?? {})) {
    if (state.state !== "ready") found.push(`${name} is ${state.state.replace("-", " ")}: ${state.reason}`);
  }
  if (report.stand_in) found.push(`${report.stand_in} takes the turns of ${report.default ?? "the default executor"}`);
  return found;
}

function Ready({ status }: { status: Status }) {
  const why = reasons(status);
  return (
    <div class={`banner ${status.ready ? (why.length ? "banner-ask" : "banner-good") : "banner-bad"}`} role="status">
      <div>
        <strong>{status.ready ? "Ready" : "Not ready"}</strong>
        {why.length === 0 && <span class="muted"> every executor and the store answer</span>}
        {why.length > 0 && (
          <ul>
            {why.map((reason) => (
              <li key={reason}>
                <Text of={reason} />
              </li>
            ))}
          </ul>
        )}
      </div>
      {status.url && (
        <div class="row">
          <code class="address">
            <Text of={status.url} />
          </code>
          <Copy text={status.url} label="Copy address" />
        </div>
      )}
    </div>
  );
}

function sum(buckets: Bucket[], of: (bucket: Bucket) => number | undefined): number {
  return buckets.reduce((total, bucket) => total + (of(bucket) ?? 0), 0);
}

function Numbers({ status }: { status: Status }) {
  const buckets = stats.value?.buckets ?? [];
  const every = stats.value?.every_s ?? 10;
  const minute = buckets.slice(-Math.ceil(60 / every));
  const turns = sum(buckets, (bucket) => bucket.turns);
  const failed = sum(buckets, (bucket) => bucket.failed);
  const denied = sum(buckets, (bucket) => bucket.denied);
  const used = status.memory;
  return (
    <ul class="tiles" aria-label="Numbers">
      <Tile name="Running" value={`${count(status.turns?.running)}`} note={status.turns?.limit ? `of at most ${count(status.turns.limit)}` : ""} to={href("turns", null, { state: "working" })} />
      <Tile name="Queued" value={count(status.turns?.queued)} note="wait for their context" />
      <Tile name="Streams" value={count(status.streams)} note="open now" />
      <Tile name="Turns, last hour" value={count(turns)} note={`${(sum(minute, (bucket) => bucket.turns) / 60).toFixed(2)} each second now`} to={href("turns")} />
      <Tile name="Failed, last hour" value={count(failed)} note={turns ? `${((100 * failed) / turns).toFixed(1)} %` : ""} bad={failed > 0} to={href("turns", null, { state: "failed" })} />
      <Tile name="Denied, last hour" value={count(denied)} note="calls, by policy" bad={denied > 0} />
      <Tile name="Memory of callers" value={bytes(used?.used)} note={used ? `of ${bytes(used.limit)}` : ""} />
    </ul>
  );
}

function Tile({ name, value, note, to, bad }: { name: string; value: string; note?: string; to?: string; bad?: boolean }) {
  const body = (
    <>
      <span class="tile-name">{name}</span>
      <span class={`tile-value num ${bad ? "bad" : ""}`}>{value}</span>
      <span class="tile-note muted num">{note}</span>
    </>
  );
  return <li class="tile">{to ? <a href={to}>{body}</a> : <div>{body}</div>}</li>;
}

function Cards() {
  const all = executors.value;
  if (!all) return null;
  return (
    <section aria-label="Executors">
      <h2 class="section">Executors</h2>
      {all.length === 0 && (
        <Empty>
          No executor yet; add one with <code>talaria executor push NAME --component FILE</code>, or below <a href={href("executors")}>Executors</a>.
        </Empty>
      )}
      <ul class="cards">
        {all.map((executor) => (
          <Card key={executor.name} executor={executor} />
        ))}
      </ul>
    </section>
  );
}

export function readinessOf(executor: Executor): Readiness | null {
  return executor.current?.readiness ?? null;
}

function Card({ executor }: { executor: Executor }) {
  const readiness = readinessOf(executor);
  const buckets = stats.value?.buckets ?? [];
  const line = useMemo(() => minutes(buckets, executor.name), [buckets, executor.name]);
  const median = [...line].reverse().find((value) => value !== null);
  const counts = executor.counts ?? {};
  return (
    <li class="card">
      <a class="card-link" href={href("executors", executor.name)}>
        <span class="card-name">
          <Text of={executor.name} />
        </span>
        {executor.default && <span class="tag">default</span>}
      </a>
      <div class="row between">
        <State of={readiness?.state ?? (executor.refused ? "refused" : "unknown")} />
        <span class="muted num">
          {executor.current ? (
            <>
              <Text of={executor.current.version} /> · <code>{short(executor.current.digest)}</code>
            </>
          ) : (
            "no version"
          )}
        </span>
      </div>
      {readiness && readiness.state !== "ready" && (
        <p class="why">
          <Text of={readiness.reason} />
        </p>
      )}
      {executor.refused && (
        <p class="why">
          refused: <Text of={executor.refused} />
        </p>
      )}
      {executor.stand_in && (
        <p class="why">
          <Text of={executor.stand_in} /> takes its turns
        </p>
      )}
      <Spark values={line} label={`median latency of ${executor.name} in the last hour${median == null ? "" : `, now ${ms(median)}`}`} />
      <dl class="counts">
        <Count name="turns" value={counts.turns} />
        <Count name="median" text={ms(median)} />
        <Count name="failed" value={counts.failed} bad />
        <Count name="denied" value={counts.denied} bad />
        <Count name="faults" value={counts.faults} bad />
      </dl>
    </li>
  );
}

function Count({ name, value, text, bad }: { name: string; value?: number | undefined; text?: string; bad?: boolean }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={`num ${bad && value ? "bad" : ""}`}>{text ?? count(value)}</dd>
    </div>
  );
}

/** The median of each minute, over the buckets of one executor that have one. */
function minutes(buckets: Bucket[], name: string): (number | null)[] {
  const size = 6;
  const line: (number | null)[] = [];
  for (let start = 0; start < buckets.length; start += size) {
    const values = buckets
      .slice(start, start + size)
      .map((bucket) => bucket.executors?.[name]?.p50_ms ?? null)
      .filter((value): value is number => value !== null)
      .sort((a, b) => a - b);
    line.push(values[Math.floor(values.length / 2)] ?? null);
  }
  return line;
}

function Charts() {
  const known = stats.value;
  const series = useMemo(() => {
    const buckets = known?.buckets ?? [];
    const of = (read: (bucket: Bucket) => number | null | undefined) => buckets.map((bucket) => read(bucket) ?? null);
    return {
      times: buckets.map((bucket) => new Date(bucket.at).getTime() / 1000),
      rate: [
        { label: "turns", colour: "--accent", values: of((bucket) => bucket.turns), bars: true },
        { label: "failed", colour: "--bad", values: of((bucket) => bucket.failed), bars: true },
      ],
      latency: [
        { label: "p50", colour: "--accent", values: of((bucket) => bucket.p50_ms) },
        { label: "p95", colour: "--ask", values: of((bucket) => bucket.p95_ms) },
        { label: "p99", colour: "--bad", values: of((bucket) => bucket.p99_ms) },
      ],
      load: [{ label: "running", colour: "--accent", values: of((bucket) => bucket.running), fill: true }],
      memory: [{ label: "held for callers", colour: "--accent", values: of((bucket) => bucket.memory), fill: true }],
    };
  }, [known]);
  if (!known) return null;
  const whole = (value: number | null | undefined) => (value == null ? "–" : Number.isInteger(value) ? count(value) : "");
  return (
    <section aria-label="The last hour">
      <h2 class="section">The last hour</h2>
      <div class="charts">
        <Chart title={`Turns in ${known.every_s} s`} times={series.times} lines={series.rate} show={whole} />
        <Chart title="Latency of turns" times={series.times} lines={series.latency} show={ms} />
        <Chart title="Turns that run" times={series.times} lines={series.load} show={whole} />
        <Chart title="Memory" times={series.times} lines={series.memory} show={bytes} binary />
      </div>
      {series.times.length === 0 && (
        <Empty>
          <NothingYet />
        </Empty>
      )}
    </section>
  );
}

function About({ status }: { status: Status }) {
  return (
    <div class="columns">
      <Panel title="Bridge">
        <Facts
          of={[
            ["Version", <Text of={status.commit ? `${status.version} (${status.commit})` : status.version} />],
            ["Started", status.started ? ago(status.started, now.value) : span(status.uptime_s)],
            ["Process", status.pid ? <span class="num">{status.pid}</span> : null],
            ["Store", status.store ? <Text of={`${status.store.url ?? ""} ${status.store.bytes ? bytes(status.store.bytes) : ""}`} /> : null],
            ["Log", status.log ? <code><Text of={status.log} /></code> : null],
            ["This page", <State of={connection.value} />],
          ]}
        />
      </Panel>
      <Panel title="Gateway">{status.gateway ? <Other of={status.gateway} /> : <p class="muted pad">This bridge starts no gateway.</p>}</Panel>
      <Panel title="Platform">{status.workspace ? <Other of={status.workspace} /> : <p class="muted pad">This bridge serves no workspace.</p>}</Panel>
    </div>
  );
}

function Other({ of }: { of: Record<string, unknown> }) {
  const entries = Object.entries(of).filter(([, value]) => value !== null && value !== undefined);
  return <Facts of={entries.map(([name, value]) => [name.replaceAll("_", " "), <Text of={typeof value === "object" ? JSON.stringify(value) : value} />])} />;
}
