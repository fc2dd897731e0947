// Text of callers, agents and components. It is never markup: everything below ends in text nodes. Characters that a reader
// cannot see, or that would reorder what is read, are shown by their names.

// C0 and C1 controls, zero-width and direction marks, and the tags that hide text. Line breaks and tabs stay where a block shows
// them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g;
const BREAKS = /[\t\n\r]/g;

/** The longest text that is shown at once; the rest is counted. */
const LONGEST = 200_000;

function name(found: string): string {
  const code = found.codePointAt(0) ?? 0;
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A text of one line, for attributes and titles. */
export function plain(text: unknown, longest = 300): string {
  const whole = String(text ?? "");
  const cut = whole.length > longest ? `${whole.slice(0, longest)}…` : whole;
  return cut.replace(BREAKS, (found) => name(found)).replace(HIDDEN, name);
}

/** A text with what cannot be seen made visible. */
export function Text({ of, block = false }: { of: unknown; block?: boolean }) {
  const whole = String(of ?? "");
  const text = whole.length > LONGEST ? whole.slice(0, LONGEST) : whole;
  const pieces = [];
  let end = 0;
  const hidden = block ? HIDDEN : new RegExp(`${HIDDEN.source}|${BREAKS.source}`, "g");
  for (const found of text.matchAll(hidden)) {
    if (found.index > end) pieces.push(text.slice(end, found.index));
    pieces.push(<span class="hidden-char">{name(found[0])}</span>);
    end = found.index + found[0].length;
  }
  pieces.push(text.slice(end));
  if (whole.length > text.length) pieces.push(<span class="muted"> … and {whole.length - text.length} characters more</span>);
  // A name that is written from right to left must not turn around what is beside it.
  return <bdi>{pieces}</bdi>;
}
