// The frame around the views: where one is, whether what is shown is live, and the keys.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askSession, session, signOut, why } from "./api";
import { Executors } from "./executors";
import { connection, start, status, stop } from "./live";
import { Overview } from "./overview";
import { go, href, route } from "./route";
import { SignIn } from "./signin";
import "./style.css";
import { isDark, turnTheme } from "./theme";
import { Try } from "./try";
import { Turn } from "./turn";
import { Turns } from "./turns";
import { Dialog, Empty, Failed, Heading } from "./ui";

const VIEWS: [string, string, string][] = [
  ["overview", "Overview", "o"],
  ["turns", "Turns", "t"],
  ["executors", "Executors", "e"],
  ["try", "Try it", "c"],
];

const KEYS: [string, string][] = [
  ["g o, g t, g e, g c", "Overview, Turns, Executors, Try it"],
  ["/", "Search the turns"],
  ["j, k", "Next and previous turn of the list"],
  ["Enter", "Open it"],
  ["Escape", "Back to the list"],
  ["d", "Light or dark"],
  ["?", "These keys"],
];

/** How long a `g` waits for its second key. */
const CHORD = 1_000;
const RETRY = 2_000;

function App() {
  const [away, setAway] = useState<string | null>(null);
  const known = session.value;
  const needsToken = known?.needed && !known.signed_in;
  useEffect(() => {
    if (known) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async () => {
      try {
        await askSession();
        setAway(null);
      } catch (error) {
        setAway(why(error));
        timer = setTimeout(() => void ask(), RETRY);
      }
    };
    void ask();
    return () => clearTimeout(timer);
  }, [known]);
  useEffect(() => {
    if (known && !needsToken) start();
    else stop();
  }, [known, needsToken]);
  if (!known) return <main id="main">{away ? <Failed what={`${away}; trying again`} /> : <Empty>Asking the bridge …</Empty>}</main>;
  return needsToken ? <SignIn /> : <Shell />;
}

function Shell() {
  const [help, setHelp] = useState(false);
  const { view, name } = route.value;
  useEffect(() => keys(() => setHelp(true)), []);
  useEffect(() => {
    const title = VIEWS.find(([id]) => id === view)?.[1] ?? "Nothing";
    document.title = `${title} · Talaria`;
    scrollTo(0, 0);
    document.getElementById("heading")?.focus({ preventScroll: true });
  }, [view, name]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          // The fragment is the route.
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top-bar">
        <a class="brand" href={href("overview")}>
          <Wing />
          Talaria
        </a>
        <nav aria-label="Views">
          <ul>
            {VIEWS.map(([id, title]) => (
              <li key={id}>
                <a href={href(id)} aria-current={view === id ? "page" : undefined}>
                  {title}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <span class="grow" />
        <Live />
        <button type="button" class="icon" onClick={turnTheme} aria-label={isDark.value ? "Light colours" : "Dark colours"} title={isDark.value ? "Light (d)" : "Dark (d)"}>
          {isDark.value ? "☀" : "☾"}
        </button>
        <button type="button" class="icon" onClick={() => setHelp(true)} aria-label="Keys" title="Keys (?)">
          ?
        </button>
        {session.value?.signed_in && (
          <button type="button" class="small" onClick={() => void signOut()}>
            Sign out
          </button>
        )}
      </header>
      <Notices />
      <main id="main" tabIndex={-1}>
        <View />
      </main>
      {help && (
        <Dialog title="Keys" onClose={() => setHelp(false)}>
          <dl class="keys">
            {KEYS.map(([pressed, does]) => (
              <div key={pressed}>
                <dt>
                  <kbd>{pressed}</kbd>
                </dt>
                <dd>{does}</dd>
              </div>
            ))}
          </dl>
        </Dialog>
      )}
    </>
  );
}

function View() {
  const { view, name } = route.value;
  switch (view) {
    case "overview":
      return <Overview />;
    case "turns":
      return name ? <Turn key={name} task={name} /> : <Turns />;
    case "executors":
      return <Executors />;
    case "try":
      return <Try />;
    default:
      return (
        <>
          <Heading>Nothing is here</Heading>
          <Empty>
            <a href={href("overview")}>To the overview</a>
          </Empty>
        </>
      );
  }
}

function Live() {
  const ready = status.value?.ready;
  const state = connection.value === "lost" ? "lost" : ready === undefined ? "connecting" : ready ? "ready" : "not-ready";
  const says = { lost: "not reachable", connecting: "connecting", ready: "ready", "not-ready": "not ready" }[state];
  return (
    <a class={`pill pill-${state}`} href={href("overview")}>
      <span class="state-dot" aria-hidden="true" />
      {says}
    </a>
  );
}

function Notices() {
  const how = connection.value;
  return (
    <div role="status" aria-live="polite">
      {how === "lost" && <div class="strip strip-bad">The bridge cannot be reached; trying again. What is shown may be old.</div>}
      {how === "polling" && <div class="strip">No live events; reading every few seconds until they are back.</div>}
    </div>
  );
}

function Wing() {
  return (
    <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true" class="wing">
      <path d="M3 17c6 0 9-2 11-5 1.6-2.4 3.5-4 7-5-.5 3-2 5-4 6 1 .2 2 .1 3-.3-1 2.3-3 3.6-5.5 3.8 .6 .4 1.2 .5 2 .4C14.5 19 9 20 3 17z" />
    </svg>
  );
}

/** The keys that work wherever nothing is being typed. */
function keys(onHelp: () => void): () => void {
  let chord = 0;
  const press = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const isTyping = target.closest("input, textarea, select, [contenteditable]") !== null;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      if (isTyping) target.blur();
      else if (route.value.view === "turns" && route.value.name) go(href("turns", null, Object.fromEntries(route.value.params)));
      return;
    }
    if (isTyping) return;
    const view = VIEWS.find(([, , letter]) => letter === event.key)?.[0];
    if (view && performance.now() - chord < CHORD) {
      chord = 0;
      go(href(view));
      return;
    }
    switch (event.key) {
      case "g":
        chord = performance.now();
        break;
      case "?":
        onHelp();
        break;
      case "d":
        turnTheme();
        break;
      case "/":
        event.preventDefault();
        if (route.value.view === "turns" && !route.value.name) {
          document.getElementById("search")?.focus();
        } else {
          go(href("turns"));
          // After the view is there.
          setTimeout(() => document.getElementById("search")?.focus(), 50);
        }
        break;
      case "j":
      case "k":
        step(event.key === "j" ? 1 : -1);
        break;
    }
  };
  addEventListener("keydown", press);
  return () => removeEventListener("keydown", press);
}

function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

const root = document.getElementById("app");
if (root) render(<App />, root);
