// Numbers and times as people read them.

export function ms(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0 ms";
  if (value < 0.1) return `${Math.max(1, Math.round(value * 1000))} µs`;
  if (value < 1) return `${value.toFixed(2)} ms`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return span(value / 1000);
}

export function span(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let rest = value;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 || Number.isInteger(rest) ? Math.round(rest) : rest.toFixed(1)} ${units[unit]}`;
}

export function count(value: number | null | undefined): string {
  return value == null ? "–" : value.toLocaleString("en-GB");
}

export function clock(at: string | null | undefined): string {
  const date = new Date(at ?? NaN);
  if (Number.isNaN(date.getTime())) return "–";
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

export function ago(at: string | null | undefined, now: number): string {
  const then = new Date(at ?? NaN).getTime();
  if (Number.isNaN(then)) return "–";
  const seconds = Math.max(0, (now - then) / 1000);
  return seconds < 2 ? "now" : `${seconds < 60 ? `${Math.floor(seconds)} s` : span(seconds).replace(/ \d+ s$/, "")} ago`;
}

export function short(digest: string | null | undefined): string {
  return (digest ?? "").replace(/^sha256:/, "").slice(0, 12) || "–";
}
