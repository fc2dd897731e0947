// A chat with the bridge in A2A, as the caller `console`. What arrives is folded into a conversation, and shown as it arrived
// beside it. The conversation outlives a change of the view, not a reload.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { asks, call, freshId, isOver, stateOf, stream } from "./a2a";
import type { A2AArtifact, A2AMessage, A2APart, Frame, Update } from "./a2a";
import { why } from "./api";
import { bytes } from "./format";
import { executors } from "./live";
import { href } from "./route";
import { Text, plain } from "./text";
import { Empty, Failed, Heading, Panel, State } from "./ui";

interface Tool {
  id: string;
  name: string;
  state: string;
  label?: string;
}

interface Said {
  key: number;
  role: "user" | "agent";
  parts: A2APart[];
  /** Pieces of the answer that no artifact has replaced yet. */
  pieces: string;
  artifacts: A2AArtifact[];
  progress: string;
  tools: Tool[];
  task: string | null;
  state: string;
  error: string | null;
  tookMs: number | null;
  firstMs: number | null;
}

interface Shown {
  key: number;
  at: number;
  id: string | null;
  raw: string;
  size: number;
}

/** What is kept of a long conversation. */
const FRAMES = 500;
const SAID = 200;
const FRAME_TEXT = 20_000;
const RESUMES = 3;
const LARGEST_FILE = 8 << 20;
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

const said = signal<Said[]>([]);
const frames = signal<Shown[]>([]);
const context = signal<string | null>(null);
/** The task that waits for an answer, or works. */
const open = signal<string | null>(null);
const busy = signal(false);
let stop: AbortController | null = null;
let keys = 0;

function key(): number {
  keys += 1;
  return keys;
}

function fresh(role: Said["role"]): Said {
  return { key: key(), role, parts: [], pieces: "", artifacts: [], progress: "", tools: [], task: null, state: "", error: null, tookMs: null, firstMs: null };
}

function revise(at: number, change: (one: Said) => Said): void {
  said.value = said.value.map((one) => (one.key === at ? change(one) : one));
}

function textOf(parts: A2APart[] | undefined): string {
  return (parts ?? []).map((part) => part.text ?? "").join("");
}

/** Folds one update into an answer. */
export function fold(one: Said, update: Update): Said {
  if (update.message) return { ...one, parts: update.message.parts, pieces: "", state: "completed" };
  if (update.task) {
    const { task } = update;
    const state = stateOf(task.status);
    return withQuestion({ ...one, task: task.id, state, artifacts: task.artifacts ?? one.artifacts }, task.status.message, state);
  }
  if (update.statusUpdate) {
    const { status, metadata, taskId } = update.statusUpdate;
    const state = stateOf(status);
    const next = { ...one, task: taskId, state: state || one.state };
    if (status.message?.metadata?.["talaria/chunk"] === true) return { ...next, pieces: one.pieces + textOf(status.message.parts) };
    const progress = metadata?.["talaria/status"];
    if (typeof progress === "string") return { ...next, progress };
    const tool = metadata?.["talaria/tool-progress"];
    if (isTool(tool)) return { ...next, tools: withTool(one.tools, tool) };
    return withQuestion(next, status.message, state);
  }
  if (update.artifactUpdate) {
    const { artifact, append, taskId } = update.artifactUpdate;
    const old = one.artifacts.find((known) => known.artifactId === artifact.artifactId);
    const merged = old && append ? { ...old, ...artifact, parts: joined(old.parts, artifact.parts) } : artifact;
    const artifacts = old ? one.artifacts.map((known) => (known === old ? merged : known)) : [...one.artifacts, merged];
    // The whole answer follows its pieces.
    const whole = textOf(merged.parts);
    const pieces = one.pieces && whole.trim().startsWith(one.pieces.trim()) ? "" : one.pieces;
    return { ...one, task: taskId, artifacts, pieces };
  }
  return one;
}

function withQuestion(one: Said, message: A2AMessage | undefined, state: string): Said {
  if (!message) return one;
  return asks(state) || isOver(state) ? { ...one, parts: message.parts } : one;
}

/** Texts that follow each other are one text, so that a word is not cut in two lines. */
function joined(old: A2APart[], more: A2APart[]): A2APart[] {
  const parts = [...old];
  for (const part of more) {
    const last = parts[parts.length - 1];
    if (part.text !== undefined && last?.text !== undefined) parts[parts.length - 1] = { ...last, text: last.text + part.text };
    else parts.push(part);
  }
  return parts;
}

function isTool(value: unknown): value is Tool {
  return typeof value === "object" && value !== null && typeof (value as Tool).name === "string";
}

function withTool(tools: Tool[], tool: Tool): Tool[] {
  const at = tools.findIndex((one) => one.id === tool.id);
  const old = tools[at];
  return old ? tools.map((one) => (one === old ? { ...old, ...tool, ...(tool.label || !old.label ? {} : { label: old.label }) } : one)) : [...tools, tool];
}

function note(frame: Frame): void {
  const shown = { key: key(), at: Date.now(), id: frame.id, raw: frame.raw.slice(0, FRAME_TEXT), size: frame.raw.length };
  frames.value = [...frames.value, shown].slice(-FRAMES);
}

async function say(parts: A2APart[], executor: string): Promise<void> {
  if (busy.value) return;
  const user = { ...fresh("user"), parts };
  const answer = fresh("agent");
  said.value = [...said.value, user, answer].slice(-SAID);
  busy.value = true;
  const stopping = new AbortController();
  stop = stopping;
  const message: A2AMessage = {
    messageId: freshId(),
    role: "ROLE_USER",
    parts,
    ...(context.value ? { contextId: context.value } : {}),
    ...(open.value ? { taskId: open.value } : {}),
    ...(executor && !open.value ? { metadata: { "talaria/executor": executor } } : {}),
  };
  const began = performance.now();
  let last: string | null = null;
  let task: string | null = open.value;
  const take = (frame: Frame) => {
    note(frame);
    if (frame.id) last = frame.id;
    if (frame.error) throw new Error(frame.error);
    const { update } = frame;
    if (!update) return;
    const where = update.task ?? update.message ?? update.statusUpdate ?? update.artifactUpdate;
    context.value = where?.contextId ?? context.value;
    task = update.task?.id ?? update.statusUpdate?.taskId ?? update.artifactUpdate?.taskId ?? update.message?.taskId ?? task;
    revise(answer.key, (one) => {
      const next = fold(one, update);
      const hasText = next.pieces || next.artifacts.length > 0 || next.parts.length > 0;
      return { ...next, firstMs: one.firstMs ?? (hasText ? performance.now() - began : null) };
    });
    open.value = task;
  };
  const settled = () => {
    const state = said.value.find((one) => one.key === answer.key)?.state ?? "";
    return isOver(state) || asks(state);
  };
  try {
    for await (const frame of stream("SendStreamingMessage", { message }, stopping.signal)) take(frame);
    for (let resumes = 0; !settled() && task && resumes < RESUMES; resumes += 1) {
      for await (const frame of stream("SubscribeToTask", { id: task }, stopping.signal, last)) take(frame);
    }
  } catch (error) {
    if (!stopping.signal.aborted) revise(answer.key, (one) => ({ ...one, error: why(error) }));
  }
  const ended = said.value.find((one) => one.key === answer.key);
  open.value = ended && asks(ended.state) ? task : null;
  revise(answer.key, (one) => ({ ...one, tookMs: performance.now() - began }));
  if (stop === stopping) stop = null;
  busy.value = false;
}

async function cancel(): Promise<void> {
  const task = open.value;
  if (!task) {
    stop?.abort();
    return;
  }
  try {
    const result = await call("CancelTask", { id: task });
    const last = said.value.filter((one) => one.role === "agent").at(-1);
    // The stream tells it too, unless the task waited for an answer.
    if (last && !busy.value && result?.status) revise(last.key, (one) => ({ ...one, state: stateOf(result.status) }));
    if (!busy.value) open.value = null;
  } catch (error) {
    const last = said.value.at(-1);
    if (last) revise(last.key, (one) => ({ ...one, error: why(error) }));
  }
}

function restart(): void {
  stop?.abort();
  said.value = [];
  frames.value = [];
  context.value = null;
  open.value = null;
}

export function Try() {
  const log = useRef<HTMLDivElement>(null);
  const all = said.value;
  useEffect(() => {
    const box = log.current;
    if (box) box.scrollTop = box.scrollHeight;
  }, [all]);
  const waits = all.at(-1);
  const question = waits && asks(waits.state) && !busy.value ? waits : null;
  return (
    <>
      <div class="row between">
        <Heading>Try it</Heading>
        <button type="button" onClick={restart} disabled={all.length === 0}>
          New conversation
        </button>
      </div>
      <div class="try-columns">
        <section class="panel chat" aria-label="Conversation">
          <div class="talk chat-log" ref={log} role="log" aria-live="polite" tabIndex={0} aria-label="Messages">
            {all.length === 0 && (
              <Empty>
                Say something: it goes over A2A to the bridge, as the caller <code>console</code>, and takes the way of any other message.
              </Empty>
            )}
            {all.map((one) => (one.role === "user" ? <User key={one.key} one={one} /> : <Agent key={one.key} one={one} />))}
          </div>
          {question && <Choices one={question} />}
          <Composer asked={question !== null} />
        </section>
        <Raw />
      </div>
    </>
  );
}

function User({ one }: { one: Said }) {
  return (
    <article class="bubble bubble-user" aria-label="You">
      <Pieces parts={one.parts} />
    </article>
  );
}

function Agent({ one }: { one: Said }) {
  const works = !one.error && one.tookMs === null;
  const nothing = one.parts.length === 0 && one.artifacts.length === 0 && !one.pieces;
  return (
    <article class="bubble bubble-agent" aria-label="Agent" aria-busy={works}>
      <header class="row wrap small-text">
        {one.state ? <State of={one.state} /> : works ? <State of="connecting" /> : null}
        {one.task && (
          <a href={href("turns", one.task)}>
            turn <code>{one.task.slice(0, 8)}</code>
          </a>
        )}
        <span class="muted num">
          {one.firstMs !== null && `first text ${Math.round(one.firstMs)} ms`}
          {one.tookMs !== null && ` · ${Math.round(one.tookMs)} ms`}
        </span>
      </header>
      {one.tools.length > 0 && (
        <ul class="tools" aria-label="Tools">
          {one.tools.map((tool) => (
            <li key={tool.id} class={`tool tool-${["started", "completed", "failed"].includes(tool.state) ? tool.state : "other"}`}>
              <span aria-hidden="true">{tool.state === "completed" ? "✓" : tool.state === "failed" ? "✕" : "…"}</span> <Text of={tool.name} />{" "}
              <span class="muted">
                <Text of={tool.label ?? tool.state} />
              </span>
            </li>
          ))}
        </ul>
      )}
      {works && one.progress && (
        <p class="muted">
          <Text of={one.progress} />
        </p>
      )}
      {one.pieces && (
        <div class="said">
          <Text of={one.pieces} block />
          {works && <span class="caret" aria-hidden="true" />}
        </div>
      )}
      {one.artifacts.map((artifact) => (
        <Pieces key={artifact.artifactId} parts={artifact.parts} />
      ))}
      <Pieces parts={one.parts} />
      {nothing && works && !one.progress && <p class="muted">…</p>}
      {nothing && !works && !one.error && <p class="muted">It answered nothing.</p>}
      {one.error && <Failed what={one.error} />}
    </article>
  );
}

function Pieces({ parts }: { parts: A2APart[] }) {
  return (
    <>
      {parts.map((part, index) => (
        <Piece key={index} part={part} />
      ))}
    </>
  );
}

function Piece({ part }: { part: A2APart }) {
  if (part.text !== undefined) {
    return part.text === "" ? null : (
      <div class="said">
        <Text of={part.text} block />
      </div>
    );
  }
  if (part.raw !== undefined) return <FilePiece part={part} raw={part.raw} />;
  if (part.url !== undefined) {
    const isWeb = /^https?:\/\//i.test(part.url);
    return (
      <p class="file">
        <span class="file-mark" aria-hidden="true" />
        {isWeb ? (
          <a href={part.url} target="_blank" rel="noreferrer noopener">
            <Text of={part.filename ?? part.url} />
          </a>
        ) : (
          <Text of={part.url} />
        )}
      </p>
    );
  }
  const approval = approvalOf(part);
  return (
    <pre class="data" tabIndex={0} aria-label={approval ? "To approve" : "Data"} role="region">
      <Text of={approval?.command === undefined ? JSON.stringify(part.data, null, 2) : approval.command} block />
    </pre>
  );
}

function FilePiece({ part, raw }: { part: A2APart; raw: string }) {
  const name = part.filename ?? "file";
  const size = Math.floor((raw.length * 3) / 4) - (raw.endsWith("==") ? 2 : raw.endsWith("=") ? 1 : 0);
  const save = () => {
    const bytes = Uint8Array.from(atob(raw), (char) => char.charCodeAt(0));
    // Never a type that a browser would show: the file is somebody else's.
    const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = plain(name, 120);
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <div class="file">
      {IMAGES.includes(part.mediaType ?? "") && raw.length < LARGEST_FILE && <img src={`data:${part.mediaType};base64,${raw}`} alt={plain(name, 120)} />}
      <p>
        <span class="file-mark" aria-hidden="true" />
        <Text of={name} /> <span class="muted num">{bytes(size)}</span>{" "}
        <button type="button" class="small" onClick={save}>
          Save<span class="sr-only"> {plain(name, 120)}</span>
        </button>
      </p>
    </div>
  );
}

interface Approval {
  command?: unknown;
  choices?: unknown;
}

function approvalOf(part: A2APart): Approval | null {
  const { data } = part;
  const approval = typeof data === "object" && data !== null && "approval" in data ? (data as { approval: unknown }).approval : null;
  return typeof approval === "object" ? (approval as Approval | null) : null;
}

/** Buttons for the answers of a question: those that an approval names, or yes and no. */
function Choices({ one }: { one: Said }) {
  const approval = one.parts.map(approvalOf).find((found) => found !== null);
  const named = approval?.choices;
  const choices = Array.isArray(named) ? named.filter((choice): choice is string => typeof choice === "string" && choice.length < 60).slice(0, 6) : [];
  return (
    <div class="choices">
      <strong>{approval ? "It asks for your approval." : "It asks."}</strong>
      <div class="row wrap">
        {(choices.length > 0 ? choices : ["yes", "no"]).map((choice) => (
          <button type="button" key={choice} onClick={() => void say([{ text: choice }], "")}>
            <Text of={choice} />
          </button>
        ))}
      </div>
    </div>
  );
}

function Composer({ asked }: { asked: boolean }) {
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [executor, setExecutor] = useState("");
  const [error, setError] = useState<string | null>(null);
  const input = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const names = (executors.value ?? []).map((one) => one.name);
  const submit = async () => {
    if (busy.value || (!text.trim() && !file)) return;
    const parts: A2APart[] = text.trim() ? [{ text }] : [];
    if (file) {
      if (file.size > LARGEST_FILE) return setError(`The file has more than ${bytes(LARGEST_FILE)}.`);
      const raw = await base64(file);
      parts.push({ raw, filename: file.name, mediaType: file.type || "application/octet-stream" });
    }
    setError(null);
    setText("");
    setFile(null);
    if (chooser.current) chooser.current.value = "";
    void say(parts, executor);
    input.current?.focus();
    return undefined;
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <label class="sr-only" for="message">
        Message
      </label>
      <textarea
        id="message"
        ref={input}
        rows={2}
        placeholder={asked ? "Your answer" : "Message   ( Enter sends, Shift+Enter breaks the line )"}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            void submit();
          }
        }}
      />
      <div class="row wrap">
        <label class="file-pick">
          <span class="sr-only">Attach a file</span>
          <input type="file" ref={chooser} onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
        </label>
        {names.length > 1 && (
          <label>
            <span class="sr-only">Executor</span>
            <select value={executor} onChange={(event) => setExecutor(event.currentTarget.value)}>
              <option value="">By the routes</option>
              {names.map((name) => (
                <option key={name} value={name}>
                  {plain(name, 60)}
                </option>
              ))}
            </select>
          </label>
        )}
        <span class="grow" />
        {(busy.value || open.value) && (
          <button type="button" class="danger" onClick={() => void cancel()}>
            Cancel
          </button>
        )}
        <button type="submit" class="primary" disabled={busy.value || (!text.trim() && !file)}>
          {asked ? "Answer" : "Send"}
        </button>
      </div>
      {error && <Failed what={error} />}
    </form>
  );
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}

function Raw() {
  const all = frames.value;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [all]);
  return (
    <Panel title="Events on the wire" aside={<span class="muted num">{all.length}</span>}>
      <div class="scroll raw" ref={box} tabIndex={0} role="region" aria-label="Raw events">
        {all.length === 0 && <p class="muted pad">Every event of the stream appears here as it was sent.</p>}
        {all.map((frame) => (
          <details key={frame.key} class="frame">
            <summary>
              <span class="muted num">{frame.id ?? "·"}</span> <span class="frame-kind">{kindOf(frame.raw)}</span> <span class="muted num">{bytes(frame.size)}</span>
            </summary>
            <pre class="data" tabIndex={0}>
              <Text of={pretty(frame.raw)} block />
            </pre>
          </details>
        ))}
      </div>
    </Panel>
  );
}

function kindOf(raw: string): string {
  const found = /"(task|message|statusUpdate|artifactUpdate|error)":/.exec(raw);
  const state = /"state":"TASK_STATE_([A-Z_]+)"/.exec(raw)?.[1]?.toLowerCase().replaceAll("_", "-");
  return [found?.[1] ?? "event", state, /talaria\/(chunk|tool-progress|status)/.exec(raw)?.[1]].filter(Boolean).join(" · ");
}

function pretty(raw: string): string {
  try {
    return JSON.stringify(JSON.parse(raw), null, 2);
  } catch {
    return raw;
  }
}
