// Calls of the admin API. Every write says that it comes from the console, and a session's writes carry its CSRF token. A call
// that the server refuses for want of a sign-in shows the sign-in page instead of an error.
import { signal } from "@preact/signals";

export interface Session {
  needed: boolean;
  signed_in: boolean;
  csrf?: string | null;
}

/** `null` until the bridge has answered. */
export const session = signal<Session | null>(null);

/** How long a call may take; an upload may take as long as the server waits for it. */
const PATIENCE = 30_000;
const UPLOAD = 310_000;

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function writing(): Record<string, string> {
  const csrf = session.value?.csrf;
  return { "x-talaria-console": "1", ...(csrf ? { "x-csrf-token": csrf } : {}) };
}

export async function open(path: string, init: RequestInit = {}, patience = PATIENCE): Promise<Response> {
  const method = init.method ?? "GET";
  const headers = { ...(method === "GET" ? {} : writing()), ...(init.headers as Record<string, string> | undefined) };
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, credentials: "same-origin", signal: init.signal ?? AbortSignal.timeout(patience) });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new Refused(0, late ? "the bridge did not answer in time" : "the bridge cannot be reached");
  }
  if (response.ok) return response;
  let message = `the bridge answered ${response.status}`;
  try {
    const body = (await response.json()) as { error?: { message?: string }; reason?: string };
    message = body.error?.message ?? body.reason ?? message;
  } catch {
    // Not JSON; the status says enough.
  }
  if (response.status === 401 && path !== "/session") session.value = { needed: true, signed_in: false };
  throw new Refused(response.status, message);
}

export async function get<T>(path: string, stop?: AbortSignal): Promise<T> {
  return (await (await open(path, stop ? { signal: stop } : {})).json()) as T;
}

export async function send<T>(method: string, path: string, body?: unknown): Promise<T | null> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  return read<T>(await open(path, init));
}

export async function upload<T>(path: string, type: string, body: BodyInit): Promise<T | null> {
  return read<T>(await open(path, { method: "PUT", headers: { "content-type": type }, body }, UPLOAD));
}

/** Reload, roll back and settings load a component, which may take as long as an upload. */
export async function change<T>(method: string, path: string, body?: unknown): Promise<T | null> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  return read<T>(await open(path, init, UPLOAD));
}

async function read<T>(response: Response): Promise<T | null> {
  const text = await response.text();
  try {
    return text ? (JSON.parse(text) as T) : null;
  } catch {
    return null;
  }
}

export function why(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Asks whether a sign-in is needed. A bridge that does not know the question needs none, or answers 401. */
export async function askSession(): Promise<void> {
  try {
    session.value = await get<Session>("/session");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) session.value = { needed: true, signed_in: false };
    else if (error instanceof Refused && error.status !== 0) session.value = { needed: false, signed_in: false };
    else throw error;
  }
}

export async function signIn(token: string): Promise<void> {
  const body = JSON.stringify({ token });
  const response = await open("/session", { method: "POST", headers: { "content-type": "application/json" }, body });
  const { csrf } = (await response.json()) as { csrf: string };
  session.value = { needed: true, signed_in: true, csrf };
}

export async function signOut(): Promise<void> {
  await send("DELETE", "/session");
  session.value = { needed: true, signed_in: false };
}
