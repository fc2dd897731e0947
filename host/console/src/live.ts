// What the bridge tells while it happens: one stream of events for the whole page. Without the stream the page asks every few
// seconds, and says so. Whatever was missed in between is read again when the stream is back.
import { signal } from "@preact/signals";
import { askSession, get, session } from "./api";
import type { Bucket, Executor, Stats, Status, TurnRow } from "./types";

export type Connection = "connecting" | "live" | "polling" | "lost";

export const connection = signal<Connection>("connecting");
export const status = signal<Status | null>(null);
export const stats = signal<Stats | null>(null);
export const executors = signal<Executor[] | null>(null);
/** Why the last reading failed. */
export const trouble = signal<string | null>(null);
/** The time, for what counts it; it moves every second. */
export const now = signal(Date.now());

type Listener = (row: TurnRow) => void;
const listeners = new Set<Listener>();

const POLL = 3_000;
const STATUS = 5_000;
/** The first wait before the stream is opened again; it doubles up to the last. */
const FIRST_RETRY = 500;
const LAST_RETRY = 10_000;
const HOUR = 360;

let source: EventSource | null = null;
let retry = FIRST_RETRY;
let timer: ReturnType<typeof setTimeout> | undefined;
let running = false;
let epoch = 0;
/** Grows whenever lists must be read again. */
export const generation = signal(0);

export function onTurn(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function readStatus(): Promise<void> {
  try {
    status.value = await get<Status>("/status");
    trouble.value = null;
  } catch (error) {
    trouble.value = error instanceof Error ? error.message : String(error);
  }
}

export async function readExecutors(): Promise<void> {
  try {
    executors.value = (await get<{ executors: Executor[] }>("/executors")).executors;
  } catch {
    // The status says that the bridge is away.
  }
}

export async function readStats(): Promise<void> {
  try {
    stats.value = await get<Stats>("/stats");
  } catch {
    // The same.
  }
}

function readAll(): void {
  void readStatus();
  void readExecutors();
  void readStats();
  generation.value += 1;
}

function addBucket(bucket: Bucket): void {
  const known = stats.value;
  if (!known) return;
  const rest = known.buckets.filter((one) => one.at !== bucket.at);
  stats.value = { ...known, now: bucket.at, buckets: [...rest, bucket].slice(-HOUR) };
}

function listen(): void {
  if (!running) return;
  const mine = (epoch += 1);
  source?.close();
  const opened = new EventSource("/events", { withCredentials: true });
  source = opened;
  opened.onopen = () => {
    if (mine !== epoch) return;
    retry = FIRST_RETRY;
    connection.value = "live";
    // Whatever happened before the stream was open.
    readAll();
  };
  const parsed = <T>(take: (value: T) => void) => {
    return (event: Event) => {
      try {
        take(JSON.parse((event as MessageEvent<string>).data) as T);
      } catch {
        // Not ours.
      }
    };
  };
  opened.addEventListener(
    "turn",
    parsed<TurnRow>((row) => {
      for (const listener of listeners) listener(row);
      if (!pending) {
        pending = true;
        setTimeout(() => {
          pending = false;
          void readStatus();
        }, 1_000);
      }
    }),
  );
  opened.addEventListener(
    "executors",
    parsed<unknown>(() => void readExecutors()),
  );
  // This page was behind and missed something.
  opened.addEventListener("reset", readAll);
  opened.addEventListener(
    "stats",
    parsed<Bucket>((bucket) => {
      addBucket(bucket);
      // The counts of the executors.
      if (!document.hidden) void readExecutors();
    }),
  );
  opened.onerror = () => {
    if (mine !== epoch) return;
    opened.close();
    void fallBack();
  };
}

let pending = false;

/** Polls until the stream can be opened again. */
async function fallBack(): Promise<void> {
  try {
    await askSession();
    if (session.value?.needed && !session.value.signed_in) return;
    connection.value = "polling";
  } catch {
    connection.value = "lost";
  }
  clearTimeout(timer);
  timer = setTimeout(listen, retry);
  retry = Math.min(retry * 2, LAST_RETRY);
}

let clocks: ReturnType<typeof setInterval>[] = [];

/** Begins to listen; nothing happens if it has begun. */
export function start(): void {
  if (running) return;
  running = true;
  retry = FIRST_RETRY;
  readAll();
  listen();
  clocks = [
    setInterval(() => {
      now.value = Date.now();
    }, 1_000),
    setInterval(() => {
      if (document.hidden) return;
      void readStatus();
    }, STATUS),
    setInterval(() => {
      if (connection.value === "live" || document.hidden) return;
      readAll();
    }, POLL),
  ];
}

export function stop(): void {
  running = false;
  epoch += 1;
  source?.close();
  source = null;
  clearTimeout(timer);
  for (const clock of clocks) clearInterval(clock);
  connection.value = "connecting";
}
