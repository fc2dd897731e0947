// The small parts that every view is made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Text } from "./text";

/** A state by its colour, its shape and its word: the colour alone says nothing. */
export function State({ of }: { of: string | null | undefined }) {
  const state = of || "unknown";
  return (
    <span class={`state state-${kindOf(state)}`}>
      <span class="state-dot" aria-hidden="true" />
      <Text of={state} />
    </span>
  );
}

function kindOf(state: string): string {
  switch (state) {
    case "ready":
    case "completed":
    case "live":
      return "good";
    case "failed":
    case "rejected":
    case "quarantined":
    case "not-ready":
    case "refused":
    case "lost":
      return "bad";
    case "working":
    case "running":
    case "connecting":
      return "busy";
    case "input-required":
    case "auth-required":
    case "waiting":
    case "polling":
      return "ask";
    default:
      return "calm";
  }
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

export function Failed({ what, children }: { what: string; children?: ComponentChildren }) {
  return (
    <div class="notice notice-bad" role="alert">
      <Text of={what} block />
      {children}
    </div>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      // Without HTTPS there is no clipboard beyond loopback.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "sr-only";
      document.body.append(area);
      area.select();
      setDone(document.execCommand("copy") ? "Copied" : "Select and copy");
      area.remove();
    }
    setTimeout(() => setDone(""), 1_500);
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {done || label}
      <span class="sr-only" aria-live="polite">
        {done}
      </span>
    </button>
  );
}

export function Panel({ title, aside, children, id }: { title: string; aside?: ComponentChildren; children: ComponentChildren; id?: string }) {
  return (
    <section class="panel" aria-label={title} id={id}>
      <header class="panel-head">
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

/** Names and values. */
export function Facts({ of, wide }: { of: [string, ComponentChildren][]; wide?: boolean }) {
  return (
    <dl class={wide ? "facts wide" : "facts"}>
      {of
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** A modal dialog: the browser keeps the focus in it and gives it back. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={ref} class="dialog" aria-label={title} onClose={onClose} onClick={(event) => event.target === ref.current && onClose()}>
      <header class="panel-head">
        <h2>{title}</h2>
        <button type="button" class="small" onClick={onClose}>
          Close
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** A button that asks before it does something that cannot be taken back. */
export function Sure({ label, ask, onYes, disabled, danger }: { label: string; ask: string; onYes: () => void; disabled?: boolean; danger?: boolean }) {
  const [asking, setAsking] = useState(false);
  return (
    <>
      <button type="button" class={danger ? "danger" : ""} disabled={disabled} onClick={() => setAsking(true)}>
        {label}
      </button>
      {asking && (
        <Dialog title={label} onClose={() => setAsking(false)}>
          <p>
            <Text of={ask} />
          </p>
          <div class="row end">
            <button type="button" onClick={() => setAsking(false)}>
              No
            </button>
            <button
              type="button"
              class={danger ? "danger" : "primary"}
              onClick={() => {
                setAsking(false);
                onYes();
              }}
            >
              {label}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** Moves with the keyboard focus to the heading of a view, so that a screen reader says where it is. */
export function Heading({ children }: { children: ComponentChildren }) {
  return (
    <h1 id="heading" tabIndex={-1}>
      {children}
    </h1>
  );
}
