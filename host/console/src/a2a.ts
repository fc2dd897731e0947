// A client of A2A 1.0 over JSON-RPC, as small as the chat needs: send with a stream, resume, cancel. It calls the bridge itself
// at `/a2a`, so what is seen here is what any caller gets.
import { open } from "./api";

export interface A2APart {
  text?: string;
  raw?: string;
  url?: string;
  data?: unknown;
  filename?: string;
  mediaType?: string;
  metadata?: Record<string, unknown>;
}

export interface A2AMessage {
  messageId: string;
  role: "ROLE_USER" | "ROLE_AGENT";
  parts: A2APart[];
  taskId?: string;
  contextId?: string;
  metadata?: Record<string, unknown>;
}

export interface A2AStatus {
  state: string;
  message?: A2AMessage;
  timestamp?: string;
}

export interface A2AArtifact {
  artifactId: string;
  name?: string;
  description?: string;
  parts: A2APart[];
  metadata?: Record<string, unknown>;
}

export interface A2ATask {
  id: string;
  contextId: string;
  status: A2AStatus;
  artifacts?: A2AArtifact[];
  history?: A2AMessage[];
  metadata?: Record<string, unknown>;
}

export interface Update {
  task?: A2ATask;
  message?: A2AMessage;
  statusUpdate?: { taskId: string; contextId: string; status: A2AStatus; metadata?: Record<string, unknown> };
  artifactUpdate?: { taskId: string; contextId: string; artifact: A2AArtifact; append?: boolean; lastChunk?: boolean; metadata?: Record<string, unknown> };
}

export interface Frame {
  id: string | null;
  raw: string;
  update: Update | null;
  error: string | null;
}

interface Reply {
  result?: Update & Partial<A2ATask>;
  error?: { code: number; message: string };
}

const HEADERS = { "content-type": "application/json", "A2A-Version": "1.0" };
/** A frame beyond this is not shown; the stream goes on. */
const LONGEST = 64 << 20;

let calls = 0;

function request(method: string, params: unknown): string {
  calls += 1;
  return JSON.stringify({ jsonrpc: "2.0", id: calls, method, params });
}

export async function call(method: string, params: unknown): Promise<Reply["result"]> {
  const response = await open("/a2a", { method: "POST", headers: HEADERS, body: request(method, params) });
  const reply = (await response.json()) as Reply;
  if (reply.error) throw new Error(reply.error.message);
  return reply.result;
}

/** Calls a method that streams, and yields what arrives until the stream ends. */
export async function* stream(method: string, params: unknown, stop: AbortSignal, after?: string | null): AsyncGenerator<Frame> {
  const headers = { ...HEADERS, accept: "text/event-stream", ...(after ? { "last-event-id": after } : {}) };
  const response = await open("/a2a", { method: "POST", headers, body: request(method, params), signal: stop });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    const raw = await response.text();
    yield frame(null, raw);
    return;
  }
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let rest = "";
  let id: string | null = null;
  let data: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    if (rest.length > LONGEST) throw new Error("a frame of the stream is too long");
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    for (const whole of lines) {
      const line = whole.endsWith("\r") ? whole.slice(0, -1) : whole;
      if (line === "") {
        if (data.length > 0) yield frame(id, data.join("\n"));
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(5).replace(/^ /, ""));
      } else if (line.startsWith("id:")) {
        id = line.slice(3).trim();
      }
    }
  }
}

function frame(id: string | null, raw: string): Frame {
  try {
    const reply = JSON.parse(raw) as Reply;
    return { id, raw, update: reply.result ?? null, error: reply.error?.message ?? null };
  } catch {
    return { id, raw, update: null, error: "the bridge sent something that is not JSON" };
  }
}

/** `TASK_STATE_INPUT_REQUIRED` as `input-required`. */
export function stateOf(status: A2AStatus | undefined): string {
  return (status?.state ?? "").replace(/^TASK_STATE_/, "").toLowerCase().replaceAll("_", "-");
}

export function isOver(state: string): boolean {
  return ["completed", "failed", "canceled", "rejected"].includes(state);
}

export function asks(state: string): boolean {
  return state === "input-required" || state === "auth-required";
}

/** An id for a message. `randomUUID` is missing beyond loopback without HTTPS. */
export function freshId(): string {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
