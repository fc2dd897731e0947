// One turn: where its time went, and the conversation beside it. What happens meanwhile arrives as events, so it is read again
// at most every READ_EVERY; bars of what still runs grow with the clock.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, send, why } from "./api";
import { bytes, clock, count, ms, short } from "./format";
import { generation, onTurn } from "./live";
import { href, route } from "./route";
import { Text, plain } from "./text";
import type { Part, Timeline, TurnDetail } from "./types";
import { Copy, Empty, Facts, Failed, Heading, Panel, State, Sure } from "./ui";
import { Waterfall } from "./waterfall";

const READ_EVERY = 120;
const ENDED = ["completed", "failed", "canceled", "rejected"];

export function Turn({ task }: { task: string }) {
  const [turn, setTurn] = useState<TurnDetail | null>(null);
  const [error, setError] = useState<string | null>(null);
  const again = generation.value;
  const back = href("turns", null, Object.fromEntries(route.value.params));

  useEffect(() => {
    let over = false;
    let reading = false;
    let due = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      if (reading) {
        due = true;
        return;
      }
      reading = true;
      try {
        const found = await get<TurnDetail>(`/turns/${encodeURIComponent(task)}`);
        if (!over) {
          setTurn(found);
          setError(null);
        }
      } catch (failure) {
        if (!over) setError(why(failure));
      }
      timer = setTimeout(() => {
        reading = false;
        if (due && !over) {
          due = false;
          void read();
        }
      }, READ_EVERY);
    };
    void read();
    const off = onTurn((row) => {
      if (row.task === task) void read();
    });
    return () => {
      over = true;
      clearTimeout(timer);
      off();
    };
  }, [task, again]);

  return (
    <>
      <p class="crumb">
        <a href={back}>← Turns</a>
      </p>
      {!turn && (error ? <Failed what={error} /> : <Empty>Reading …</Empty>)}
      {turn && <Head turn={turn} />}
      {turn && error && <Failed what={error} />}
      {turn && (
        <div class="turn-columns">
          <div>
            <Timelines turn={turn} />
            <Events turn={turn} />
          </div>
          <div>
            <Conversation turn={turn} />
            <More turn={turn} />
          </div>
        </div>
      )}
    </>
  );
}

function Head({ turn }: { turn: TurnDetail }) {
  const [said, setSaid] = useState<string | null>(null);
  const cancel = async () => {
    setSaid(null);
    try {
      await send("POST", `/turns/${encodeURIComponent(turn.task)}/cancel`);
    } catch (failure) {
      setSaid(why(failure));
    }
  };
  const question = [...(turn.messages ?? [])].reverse().find((message) => message.role === "user");
  const title = question?.parts.map((part) => part.text ?? "").join(" ").trim();
  return (
    <>
      <div class="row between top">
        <div class="grow">
          <Heading>
            <Text of={title ? plain(title, 120) : `Turn ${turn.task.slice(0, 8)}`} />
          </Heading>
          <p class="row wrap">
            <State of={turn.state} />
            <span class="muted">
              <Text of={turn.executor ?? "–"} /> · <Text of={turn.owner ?? "anyone"} /> · <time dateTime={turn.at}>{clock(turn.at)}</time>
            </span>
          </p>
        </div>
        {!ENDED.includes(turn.state) && (
          <Sure label="Cancel turn" ask="Cancel this turn? The agent's work on it ends, and the caller sees it canceled." onYes={() => void cancel()} danger />
        )}
      </div>
      {said && <Failed what={said} />}
    </>
  );
}

function Timelines({ turn }: { turn: TurnDetail }) {
  const all = turn.timelines ?? [];
  if (all.length === 0) {
    return (
      <Panel title="Timeline">
        <p class="muted pad">
          The timeline of this turn is no longer in memory: it is kept for recent turns, until the bridge stops. The events below are in the store.
        </p>
      </Panel>
    );
  }
  return (
    <>
      {[...all].reverse().map((timeline, index) => (
        <Panel
          key={`${timeline.accepted} ${index}`}
          title={all.length > 1 ? `Timeline of message ${all.length - index}` : "Timeline"}
          aside={<State of={timeline.state} />}
        >
          <Reason timeline={timeline} />
          <Waterfall timeline={timeline} events={turn.events ?? []} />
          <Summary timeline={timeline} />
        </Panel>
      ))}
    </>
  );
}

function Reason({ timeline }: { timeline: Timeline }) {
  if (!timeline.reason && !timeline.upstream_error) return null;
  return (
    <div class="notice notice-bad">
      {timeline.reason && (
        <p>
          {timeline.failure && <b>{timeline.failure}: </b>}
          <Text of={timeline.reason} block />
        </p>
      )}
      {timeline.upstream_error && (
        <p>
          The upstream answered <b class="num">{timeline.upstream_error.status}</b>
          {timeline.upstream_error.body && (
            <>
              : <Text of={timeline.upstream_error.body} />
            </>
          )}
        </p>
      )}
    </div>
  );
}

function Summary({ timeline }: { timeline: Timeline }) {
  return (
    <Facts
      of={[
        ["Queue", <span class="num">{ms(timeline.queued_ms)}</span>],
        ["Waited for an instance", <span class="num">{ms(timeline.waited_ms)}</span>],
        ["First text", <span class="num">{ms(timeline.first_text_ms)}</span>],
        ["Guest", <span class="num">{ms(timeline.guest_ms)}</span>],
        ["Upstream", <span class="num">{ms(timeline.upstream_ms)}</span>],
        ["Total", <span class="num">{ms(timeline.total_ms)}</span>],
        ["Reply", <span class="num">{bytes(timeline.reply_bytes)}</span>],
        ["Tokens", timeline.tokens ? <span class="num">{`${count(timeline.tokens.input)} in, ${count(timeline.tokens.output)} out`}</span> : null],
        ["Memory", timeline.memory_bytes ? <span class="num">{bytes(timeline.memory_bytes)}</span> : null],
        ["Version", timeline.version ? <><Text of={timeline.version} /> <code>{short(timeline.digest)}</code></> : null],
      ]}
    />
  );
}

function Events({ turn }: { turn: TurnDetail }) {
  const events = turn.events ?? [];
  return (
    <Panel title="Events" aside={<span class="muted num">{events.length}</span>}>
      {events.length === 0 ? (
        <p class="muted pad">No event in the store yet.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Events, table">
          <table>
            <thead>
              <tr>
                <th scope="col" class="right">#</th>
                <th scope="col">Time</th>
                <th scope="col">Kind</th>
                <th scope="col">What</th>
              </tr>
            </thead>
            <tbody>
              {events.map((event) => (
                <tr key={event.sequence}>
                  <td class="num right muted">{event.sequence}</td>
                  <td class="num">{clock(event.at)}</td>
                  <td>{event.kind}</td>
                  <td class="break">
                    <Text of={event.summary ?? ""} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

export function Parts({ parts }: { parts: Part[] }) {
  return (
    <>
      {parts.map((part, index) => {
        if (part.text !== undefined) {
          return (
            <div class="said" key={index}>
              <Text of={part.text} block />
              {part.cut && <span class="muted"> … the rest is not shown</span>}
            </div>
          );
        }
        if (part.data !== undefined) {
          return (
            <pre class="data" key={index} tabIndex={0}>
              <Text of={JSON.stringify(part.data, null, 2)} block />
            </pre>
          );
        }
        return (
          <p class="file" key={index}>
            <span class="file-mark" aria-hidden="true" />
            <Text of={part.file ?? part.uri ?? "file"} />
            <span class="muted">
              {" "}
              <Text of={part.media_type ?? ""} /> {part.bytes == null ? "" : bytes(part.bytes)}
            </span>
          </p>
        );
      })}
    </>
  );
}

function Conversation({ turn }: { turn: TurnDetail }) {
  const messages = turn.messages ?? [];
  return (
    <Panel title="Conversation">
      <div class="talk">
        {turn.messages_cut ? <p class="muted small-text">{count(turn.messages_cut)} earlier messages are not shown.</p> : null}
        {messages.map((message, index) => (
          <article key={index} class={`bubble bubble-${message.role}`} aria-label={message.role === "user" ? "Caller" : "Agent"}>
            <header class="muted small-text">
              {message.role === "user" ? "Caller" : "Agent"}
              {message.at ? ` · ${clock(message.at)}` : ""}
            </header>
            <Parts parts={message.parts} />
          </article>
        ))}
        {(turn.artifacts ?? []).map((artifact) => (
          <article key={artifact.id} class="bubble bubble-agent" aria-label={artifact.id === "reply" ? "Agent" : "Artifact"}>
            <header class="muted small-text">
              {artifact.id === "reply" ? "Agent" : "Artifact "}
              {artifact.id !== "reply" && <Text of={artifact.name ?? artifact.id} />}
            </header>
            <Parts parts={artifact.parts} />
          </article>
        ))}
        {messages.length === 0 && <p class="muted">No message is stored.</p>}
      </div>
      {turn.question && <Answer task={turn.task} />}
    </Panel>
  );
}

function Answer({ task }: { task: string }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLTextAreaElement>(null);
  const answer = async (words: string) => {
    if (!words.trim() || busy) return;
    setBusy(true);
    setError(null);
    try {
      await send("POST", `/turns/${encodeURIComponent(task)}/answer`, { text: words });
      setText("");
    } catch (failure) {
      setError(why(failure));
    }
    setBusy(false);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void answer(text);
      }}
    >
      <p class="ask-line">
        <strong>It waits for an answer.</strong> <span class="muted">You answer in the name of its owner.</span>
      </p>
      <label class="sr-only" for="answer">
        Answer
      </label>
      <textarea id="answer" ref={input} rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <div class="row end">
        <button type="button" disabled={busy} onClick={() => void answer("no")}>
          No
        </button>
        <button type="button" disabled={busy} onClick={() => void answer("yes")}>
          Yes
        </button>
        <button type="submit" class="primary" disabled={busy || !text.trim()}>
          Answer
        </button>
      </div>
      {error && <Failed what={error} />}
    </form>
  );
}

/** Where traces are shown, if the operator told this browser. `{}` stands for the id. */
const TRACES = "talaria.traces";

function More({ turn }: { turn: TurnDetail }) {
  return (
    <Panel title="Details">
      <Facts
        wide
        of={[
          ["Task", <Id of={turn.task} />],
          [
            "Context",
            <>
              <Id of={turn.context} /> <a href={href("turns", null, { context: turn.context })}>its turns</a>
            </>,
          ],
          ["Trace", turn.trace_id ? <Trace id={turn.trace_id} /> : null],
          ["On the command line", <code class="break">talaria tasks show {plain(turn.task)}</code>],
        ]}
      />
      {turn.metadata && Object.keys(turn.metadata).length > 0 && (
        <details class="pad">
          <summary>Metadata</summary>
          <pre class="data" tabIndex={0}>
            <Text of={JSON.stringify(turn.metadata, null, 2)} block />
          </pre>
        </details>
      )}
    </Panel>
  );
}

function Id({ of }: { of: string }) {
  return (
    <>
      <code class="break">
        <Text of={of} />
      </code>{" "}
      <Copy text={of} />
    </>
  );
}

function Trace({ id }: { id: string }) {
  const [template, setTemplate] = useState(() => {
    try {
      return localStorage.getItem(TRACES) ?? "";
    } catch {
      return "";
    }
  });
  const safe = /^https?:\/\/[^\s]+$/.test(template) && template.includes("{}");
  const keep = (value: string) => {
    setTemplate(value);
    try {
      localStorage.setItem(TRACES, value);
    } catch {
      // For this visit, then.
    }
  };
  return (
    <>
      {safe ? (
        <a class="break" href={template.replace("{}", encodeURIComponent(id))} target="_blank" rel="noreferrer noopener">
          <Text of={id} />
        </a>
      ) : (
        <Id of={id} />
      )}
      <details>
        <summary>Where traces are shown</summary>
        <label>
          Address with {"{}"} for the id
          <input value={template} maxLength={500} placeholder="https://grafana.example/explore?trace={}" onChange={(event) => keep(event.currentTarget.value.trim())} />
        </label>
      </details>
    </>
  );
}
