// Executors: what each one may do, which versions it had, who changed it, and every change. A change is shown step by step,
// because the bridge compiles and probes a component before it takes turns, and refuses it without touching the one in service.
import { useEffect, useState } from "preact/hooks";
import { change, get, send, upload, why } from "./api";
import { ago, bytes, clock, count, short } from "./format";
import { executors, generation, now, readExecutors, status } from "./live";
import { go, href, route } from "./route";
import { SettingsForm } from "./schema";
import { Text, plain } from "./text";
import type { Change, Executor, Version } from "./types";
import { Copy, Empty, Facts, Failed, Heading, Panel, State, Sure } from "./ui";

const AUDIT_EVERY = 5_000;

export function Executors() {
  const all = executors.value;
  const { name } = route.value;
  if (!all) return <Empty>Asking the bridge …</Empty>;
  if (name !== null) {
    const found = all.find((executor) => executor.name === name);
    return (
      <>
        <p class="crumb">
          <a href={href("executors")}>← Executors</a>
        </p>
        {found ? (
          <One key={found.name} executor={found} />
        ) : (
          <>
            <Heading>
              <Text of={name} />
            </Heading>
            <Empty>There is no executor of this name now.</Empty>
            <Audit of={name} />
          </>
        )}
      </>
    );
  }
  return (
    <>
      <Heading>Executors</Heading>
      <Cannot />
      <div class="panel flush">
        <table class="executors">
          <caption class="sr-only">Executors</caption>
          <thead>
            <tr>
              <th scope="col">Executor</th>
              <th scope="col">State</th>
              <th scope="col">Version</th>
              <th scope="col">Needs</th>
              <th scope="col" class="right">Turns</th>
              <th scope="col" class="right">Failed</th>
              <th scope="col" class="right">Denied</th>
              <th scope="col" class="right">Faults</th>
            </tr>
          </thead>
          <tbody>
            {all.map((executor) => {
              const missing = (executor.needs ?? []).filter((need) => !need.granted).length;
              return (
                <tr key={executor.name}>
                  <td>
                    <a href={href("executors", executor.name)}>
                      <Text of={executor.name} />
                    </a>{" "}
                    {executor.default && <span class="tag">default</span>}
                  </td>
                  <td>
                    <State of={executor.current?.readiness?.state ?? (executor.refused ? "refused" : "unknown")} />
                  </td>
                  <td>
                    {executor.current ? (
                      <>
                        <Text of={executor.current.version} /> <code>{short(executor.current.digest)}</code>
                      </>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td>{missing > 0 ? <span class="tag tag-bad">{missing} denied</span> : <span class="muted">{(executor.needs ?? []).length > 0 ? "all granted" : "none"}</span>}</td>
                  <td class="num right">{count(executor.counts?.turns)}</td>
                  <td class="num right">{count(executor.counts?.failed)}</td>
                  <td class="num right">{count(executor.counts?.denied)}</td>
                  <td class="num right">{count(executor.counts?.faults)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
        {all.length === 0 && <Empty>No executor yet.</Empty>}
      </div>
      <Panel title="Add an executor">
        <Upload name={null} />
      </Panel>
      <Audit of={null} />
    </>
  );
}

function canChange(): boolean {
  return status.value?.can_change ?? true;
}

function Cannot() {
  if (canChange()) return null;
  return (
    <div class="notice">
      Executors can only be looked at here. To change them, start the bridge with a token: <code>{'admin.token = { env = "ADMIN_TOKEN" }'}</code>
    </div>
  );
}

function One({ executor }: { executor: Executor }) {
  const [doing, setDoing] = useState<Doing | null>(null);
  const { current, waiting, name } = executor;
  const path = `/executors/${encodeURIComponent(name)}`;
  const act = (what: string, method: string, to: string, body?: unknown) => perform(setDoing, what, () => change<Answer>(method, to, body));
  const remove = async () => {
    setDoing({ what: "remove", state: "busy", says: "" });
    try {
      await send("DELETE", path);
      await readExecutors();
      go(href("executors"));
    } catch (error) {
      setDoing({ what: "remove", state: "bad", says: why(error) });
    }
  };
  const versions = executor.versions ?? [];
  const busy = doing?.state === "busy";
  return (
    <>
      <div class="row between top">
        <div class="grow">
          <Heading>
            <Text of={name} />
          </Heading>
          <p class="row wrap">
            <State of={current?.readiness?.state ?? (executor.refused ? "refused" : "unknown")} />
            {executor.default && <span class="tag">default</span>}
            <a href={href("turns", null, { executor: name })}>its turns</a>
          </p>
        </div>
        <div class="row wrap">
          <button type="button" disabled={!canChange() || busy} onClick={() => void act("Reload", "POST", `${path}/reload`)}>
            Reload
          </button>
          <Sure label="Roll back" ask={`Put the version before the present one of ${name} into service again?`} disabled={!canChange() || busy} onYes={() => void act("Roll back", "POST", `${path}/rollback`)} />
          <Sure label="Remove" ask={`Take ${name} out of service? Its files are removed from the folder of executors.`} disabled={!canChange() || busy} onYes={() => void remove()} danger />
        </div>
      </div>
      <Cannot />
      {current?.readiness && current.readiness.state !== "ready" && <Failed what={current.readiness.reason} />}
      {executor.refused && <Failed what={`Refused: ${executor.refused}`} />}
      {executor.stand_in && (
        <div class="notice">
          <Text of={executor.stand_in} /> takes its turns meanwhile.
        </div>
      )}
      {doing && <Steps doing={doing} />}
      <div class="turn-columns">
        <div>
          <Needs executor={executor} />
          <Panel title="Settings">
            <SettingsForm
              schema={executor.schema}
              settings={executor.settings ?? {}}
              disabled={!canChange()}
              onSave={async (settings) => {
                await change("PUT", `${path}/settings`, settings);
                await readExecutors();
              }}
            />
          </Panel>
          <Panel title="Swap for another version">
            <Upload name={name} />
          </Panel>
        </div>
        <div>
          <Panel title="In service">
            {current ? <VersionFacts version={current} /> : <p class="muted pad">No version is in service.</p>}
            <Facts
              of={[
                ["Turns", <span class="num">{count(executor.counts?.turns)}</span>],
                ["Failed", <span class="num">{count(executor.counts?.failed)}</span>],
                ["Denied calls", <span class="num">{count(executor.counts?.denied)}</span>],
                ["Faults", <span class="num">{count(executor.counts?.faults)}</span>],
                ["Fallback", executor.fallback ? <Text of={executor.fallback} /> : null],
                ["If it fails", executor.fail_mode ? <Text of={executor.fail_mode} /> : null],
              ]}
            />
          </Panel>
          {waiting && (
            <Panel title="Waits for its upstream" aside={<State of="waiting" />}>
              <VersionFacts version={waiting} />
            </Panel>
          )}
          <Panel title="Versions" aside={<span class="muted num">{versions.length}</span>}>
            {versions.length === 0 ? (
              <p class="muted pad">No version is stored. One is, with the first swap through this server.</p>
            ) : (
              <ul class="versions">
                {versions.map((version) => (
                  <li key={`${version.digest} ${version.since ?? ""}`}>
                    <code>{short(version.digest)}</code> <Text of={version.version ?? ""} /> <span class="muted num">{version.since ? ago(version.since, now.value) : ""}</span>
                    {version.digest === current?.digest && <span class="tag">in service</span>}
                  </li>
                ))}
              </ul>
            )}
          </Panel>
          <Audit of={name} />
        </div>
      </div>
    </>
  );
}

function VersionFacts({ version }: { version: Version }) {
  return (
    <Facts
      wide
      of={[
        ["Component", <Text of={version.component} />],
        ["Version", <Text of={version.version} />],
        [
          "Digest",
          <>
            <code class="break">{plain(version.digest)}</code> <Copy text={version.digest} />
          </>,
        ],
        ["From", version.from ? <span class="break"><Text of={version.from} /></span> : null],
      ]}
    />
  );
}

function Needs({ executor }: { executor: Executor }) {
  const needs = executor.needs ?? [];
  return (
    <Panel title="Needs and grants">
      {needs.length === 0 ? (
        <p class="muted pad">Its component declares no need: it may call nothing.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Needs and grants, table">
          <table>
            <thead>
              <tr>
                <th scope="col">Need</th>
                <th scope="col">Policy</th>
                <th scope="col">Line</th>
              </tr>
            </thead>
            <tbody>
              {needs.map((need) => (
                <tr key={`${need.kind} ${need.need}`}>
                  <td class="break">
                    {need.kind && <span class="muted">{need.kind} </span>}
                    <code>
                      <Text of={need.need} />
                    </code>
                  </td>
                  <td>{need.granted ? <span class="tag tag-good">granted</span> : <span class="tag tag-bad">denied</span>}</td>
                  <td class="break">
                    {need.line && (
                      <>
                        <code>
                          <Text of={need.line} />
                        </code>{" "}
                        {!need.granted && <Copy text={need.line} label="Copy line" />}
                      </>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

// --- changes ---

interface Answer {
  status?: string;
  executor?: Executor | null;
}

interface Doing {
  what: string;
  state: "busy" | "good" | "wait" | "bad";
  says: string;
  files?: string;
  answer?: Executor | null;
  since?: number;
  took?: number;
}

async function perform(set: (doing: Doing) => void, what: string, run: () => Promise<Answer | null>, files?: string): Promise<boolean> {
  const since = Date.now();
  const base: Doing = { what, state: "busy", says: "", since, ...(files ? { files } : {}) };
  set(base);
  try {
    const answer = await run();
    await readExecutors();
    const waits = Boolean(answer?.executor?.waiting);
    set({ ...base, state: waits ? "wait" : "good", says: answer?.status ?? "takes turns", answer: answer?.executor ?? null, took: Date.now() - since });
    return true;
  } catch (error) {
    void readExecutors();
    set({ ...base, state: "bad", says: why(error), took: Date.now() - since });
    return false;
  }
}

/** The steps of a change, each with what is known of it. */
function Steps({ doing }: { doing: Doing }) {
  const { state } = doing;
  const version = doing.answer?.waiting ?? doing.answer?.current;
  const readiness = version?.readiness;
  const elapsed = state === "busy" ? Math.max(0, Math.round((now.value - (doing.since ?? now.value)) / 1000)) : Math.round((doing.took ?? 0) / 100) / 10;
  type Row = [string, "done" | "busy" | "bad" | "later" | "wait", string];
  const rows: Row[] = [];
  if (doing.files) rows.push(["Files sent", state === "busy" ? "busy" : "done", doing.files]);
  rows.push(["Component checked and compiled", state === "bad" ? "bad" : state === "busy" ? "busy" : "done", version ? `${version.component} ${version.version}, ${short(version.digest)}` : state === "bad" ? doing.says : ""]);
  rows.push([
    "Probed",
    state === "bad" ? "later" : state === "busy" ? "busy" : readiness && readiness.state !== "ready" ? "wait" : "done",
    readiness ? (readiness.state === "ready" ? "the probe passed" : `${readiness.state}: ${readiness.reason}`) : "",
  ]);
  rows.push(["In service", state === "good" ? "done" : state === "wait" ? "wait" : "later", state === "good" || state === "wait" ? doing.says : state === "bad" ? "the version in service was not touched" : ""]);
  return (
    <div class={`notice steps ${state === "bad" ? "notice-bad" : ""}`} role="status" aria-label={doing.what}>
      <strong>
        {doing.what} <span class="muted num">{elapsed} s</span>
      </strong>
      <ol>
        {rows.map(([name, kind, says]) => (
          <li key={name} class={`step step-${kind}`}>
            <span class="step-mark" aria-hidden="true">
              {{ done: "✓", busy: "…", bad: "✕", later: "·", wait: "…" }[kind]}
            </span>
            <span>
              {name}
              <span class="sr-only">: {kind === "later" ? "not reached" : kind}</span>
            </span>
            {says && (
              <span class="muted break">
                <Text of={says} />
              </span>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}

/** The largest component that the bridge accepts is smaller than this. */
const LARGEST = 130 << 20;
const NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;

function Upload({ name }: { name: string | null }) {
  const [as, setAs] = useState("");
  const [component, setComponent] = useState<File | null>(null);
  const [policy, setPolicy] = useState<File | null>(null);
  const [doing, setDoing] = useState<Doing | null>(null);
  const [error, setError] = useState<string | null>(null);
  const target = name ?? as;
  const busy = doing?.state === "busy";
  const put = async () => {
    setError(null);
    if (!name && !NAME.test(as)) return setError("A name has lower-case letters, digits and hyphens, such as my-agent.");
    if (!component && !policy) return setError("Choose a component, its configuration, or both.");
    if ((component?.size ?? 0) > LARGEST) return setError(`The component has more than ${bytes(LARGEST)}.`);
    const files = [component, policy].flatMap((file) => (file ? [`${file.name} (${bytes(file.size)})`] : [])).join(", ");
    const path = `/executors/${encodeURIComponent(target)}`;
    await perform(
      setDoing,
      name ? "Swap" : "Add",
      async () => {
        if (component && policy) {
          const both = JSON.stringify({ component: await base64(component), policy: await policy.text() });
          return upload<Answer>(path, "application/json", both);
        }
        if (component) return upload<Answer>(path, "application/wasm", component);
        return upload<Answer>(path, "application/toml", await (policy as File).text());
      },
      files,
    );
    return undefined;
  };
  return (
    <form
      class="pad upload"
      onSubmit={(event) => {
        event.preventDefault();
        void put();
      }}
    >
      <fieldset disabled={!canChange() || busy} class="bare">
        {name === null && (
          <div class="field">
            <label for="new-name">Name</label>
            <input id="new-name" value={as} maxLength={64} onInput={(event) => setAs(event.currentTarget.value.trim())} />
          </div>
        )}
        <div class="field">
          <label for={`component-${name ?? ""}`}>Component</label>
          <input id={`component-${name ?? ""}`} type="file" accept=".wasm,application/wasm" onChange={(event) => setComponent(event.currentTarget.files?.[0] ?? null)} />
          <p class="hint">a .wasm file of the contract talaria:executor</p>
        </div>
        <div class="field">
          <label for={`policy-${name ?? ""}`}>Configuration</label>
          <input id={`policy-${name ?? ""}`} type="file" accept=".toml" onChange={(event) => setPolicy(event.currentTarget.files?.[0] ?? null)} />
          <p class="hint">a .toml file with its settings and grant{name ? "; without one, the present one stays" : ""}</p>
        </div>
        <div class="row end">
          <button type="submit" class="primary">
            {name ? "Swap" : "Add"}
          </button>
        </div>
      </fieldset>
      {error && <Failed what={error} />}
      {doing && <Steps doing={doing} />}
    </form>
  );
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

// --- audit ---

function Audit({ of }: { of: string | null }) {
  const [all, setAll] = useState<Change[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const table = executors.value;
  const again = generation.value;
  useEffect(() => {
    const stop = new AbortController();
    const read = async () => {
      try {
        setAll((await get<{ changes: Change[] }>("/audit", stop.signal)).changes);
        setError(null);
      } catch (failure) {
        if (!stop.signal.aborted) setError(why(failure));
      }
    };
    void read();
    const timer = setInterval(() => !document.hidden && void read(), AUDIT_EVERY);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [again, table]);
  const shown = (all ?? [])
    .filter((one) => of === null || one.executor === of)
    .sort((a, b) => b.at.localeCompare(a.at))
    .slice(0, 100);
  return (
    <Panel title="Audit">
      {error && <Failed what={error} />}
      {all && shown.length === 0 && <p class="muted pad">No change yet.</p>}
      {shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Audit, table">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Who</th>
                <th scope="col">What</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((one, index) => (
                <tr key={`${one.at} ${index}`}>
                  <td class="num nowrap">{clock(one.at)}</td>
                  <td>
                    <Text of={typeof one.who === "string" ? one.who : JSON.stringify(one.who)} />
                  </td>
                  <td>
                    <Text of={one.what} /> {of === null && one.executor && <Text of={one.executor} />} {one.task && <a href={href("turns", one.task)}>{one.task.slice(0, 8)}</a>}{" "}
                    {one.digest && <code>{short(one.digest)}</code>}
                  </td>
                  <td class="break">
                    <Text of={one.reason ?? ""} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
