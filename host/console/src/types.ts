// What the admin API answers, as far as the console reads it. Every field that an older or a starting bridge may leave out is
// optional: a page with a gap is better than no page.

export type Readiness = { state: "ready" } | { state: "not-ready" | "quarantined"; reason: string };

export interface Health {
  ready: boolean;
  reason?: string;
  default?: string;
  stand_in?: string;
  executors?: Record<string, Readiness>;
  store?: Readiness;
  draining?: boolean;
}

export interface Status {
  version: string;
  commit?: string;
  started?: string;
  uptime_s?: number;
  url?: string;
  pid?: number;
  ready: boolean;
  readiness?: Health;
  turns?: { queued: number; running: number; limit: number };
  streams?: number;
  memory?: { used: number; limit: number };
  store?: { url?: string; bytes?: number };
  gateway?: Record<string, unknown> | null;
  workspace?: Record<string, unknown> | null;
  can_change?: boolean;
  log?: string;
}

export interface Bucket {
  at: string;
  turns: number;
  failed: number;
  p50_ms?: number | null;
  p95_ms?: number | null;
  p99_ms?: number | null;
  executors?: Record<string, { turns: number; failed: number; p50_ms?: number | null }>;
  running?: number;
  memory?: number;
  denied?: number;
}

export interface Stats {
  every_s: number;
  now: string;
  buckets: Bucket[];
}

export interface Step {
  number: number;
  kind: "call" | "callback" | "tool" | "span";
  name: string;
  began_ms: number;
  took_ms: number | null;
  status: number | null;
  sent: number;
  received: number;
  denied: boolean;
  error: string | null;
}

export interface Timeline {
  task: string;
  context: string;
  caller: string | null;
  executor: string;
  version: string | null;
  digest: string | null;
  accepted: string;
  state: string;
  queued_ms: number | null;
  waited_ms: number;
  first_text_ms: number | null;
  guest_ms: number;
  upstream_ms: number;
  total_ms: number;
  memory_bytes: number;
  reply_bytes: number;
  tokens: { input: number; output: number } | null;
  failure: string | null;
  reason: string | null;
  upstream_error: { status: number; body: string } | null;
  steps?: Step[];
  omitted?: number;
}

export interface TurnRow {
  task: string;
  context: string;
  owner: string | null;
  executor: string | null;
  state: string;
  at: string;
  text?: string | null;
  running?: boolean;
  timeline?: Timeline | null;
}

export interface Part {
  text?: string;
  file?: string | null;
  media_type?: string | null;
  bytes?: number | null;
  uri?: string | null;
  data?: unknown;
  /** It is longer than what is shown. */
  cut?: boolean;
}

export interface TurnDetail {
  task: string;
  context: string;
  owner: string | null;
  executor: string | null;
  state: string;
  at: string;
  metadata?: Record<string, unknown>;
  messages?: { role: "user" | "agent"; at?: string; parts: Part[] }[];
  messages_cut?: number;
  artifacts?: { id: string; name?: string | null; parts: Part[] }[];
  question?: boolean;
  timelines?: Timeline[];
  events?: { sequence: number; at: string; kind: string; summary?: string }[];
  events_cut?: number;
  trace_id?: string | null;
}

export interface Version {
  component: string;
  version: string;
  digest: string;
  from?: string;
  readiness?: Readiness;
}

export interface Executor {
  name: string;
  default?: boolean;
  current?: Version;
  waiting?: Version;
  refused?: string;
  fallback?: string;
  stand_in?: string;
  fail_mode?: string;
  needs?: { kind?: string; need: string; granted: boolean; line?: string | null }[];
  settings?: Record<string, unknown>;
  schema?: Schema | null;
  versions?: { digest: string; version?: string | null; since?: string | null }[];
  counts?: { turns?: number; failed?: number; denied?: number; faults?: number };
}

export interface Change {
  at: string;
  who: unknown;
  what: string;
  executor?: string;
  task?: string;
  digest?: string;
  before?: string;
  reason?: string;
}

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  pattern?: string;
  format?: string;
  additionalProperties?: boolean | Schema;
}
