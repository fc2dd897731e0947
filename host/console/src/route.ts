// The view and its parameters, in the fragment of the address: `#/turns/TASK?state=failed`. Filters are in it, so that a
// reload, the back button and a copied link show the same.
import { signal } from "@preact/signals";

export interface Route {
  view: string;
  name: string | null;
  params: URLSearchParams;
}

export const route = signal<Route>(parse());

function parse(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", name = ""] = path.split("/", 2);
  let decoded: string | null = null;
  try {
    decoded = name ? decodeURIComponent(name) : null;
  } catch {
    // A broken escape names nothing.
  }
  return { view: view || "overview", name: decoded, params: new URLSearchParams(query) };
}

export function href(view: string, name?: string | null, params?: Record<string, string | null | undefined>): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params ?? {})) if (value) query.set(key, value);
  const tail = query.size > 0 ? `?${query}` : "";
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${tail}`;
}

export function go(to: string): void {
  location.hash = to;
}

/** Changes parameters without a new entry in the history. */
export function refine(changes: Record<string, string | null>): void {
  const { view, name, params } = route.value;
  const next = new URLSearchParams(params);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  history.replaceState(null, "", href(view, name, Object.fromEntries(next)));
  route.value = parse();
}

addEventListener("hashchange", () => {
  route.value = parse();
});
