// The list of turns, live. Filters are parameters of the address; the bridge applies them to what is stored, and the page to
// what arrives. A row that no longer fits its filter leaves.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, why } from "./api";
import { ago, ms } from "./format";
import { connection, executors, generation, now, onTurn, status } from "./live";
import { href, refine, route } from "./route";
import { Text, plain } from "./text";
import type { TurnRow } from "./types";
import { Empty, Failed, Heading, State } from "./ui";

const STATES = ["submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"];
const FILTERS = ["state", "executor", "owner", "context", "search"] as const;
const PAGE = 50;
/** Rows that the page keeps; older ones are read again with "Older". */
const KEPT = 500;
const TYPING = 200;

function filters(): Record<string, string> {
  const { params } = route.value;
  return Object.fromEntries(FILTERS.map((name) => [name, params.get(name) ?? ""]).filter(([, value]) => value));
}

/** Whether a row that arrives fits what is asked for. */
export function fits(row: TurnRow, wanted: Record<string, string>): boolean {
  const { state, executor, owner, context, search } = wanted;
  const text = `${row.task} ${row.context} ${row.text ?? ""}`.toLowerCase();
  return (
    (!state || row.state === state) &&
    (!executor || row.executor === executor) &&
    (!owner || (owner === "-" ? row.owner === null : row.owner === owner)) &&
    (!context || row.context === context) &&
    (!search || text.includes(search.toLowerCase()))
  );
}

export function Turns() {
  const wanted = filters();
  const query = new URLSearchParams(wanted).toString();
  const [rows, setRows] = useState<TurnRow[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [fresh, setFresh] = useState<Set<string>>(new Set());
  const [older, setOlder] = useState(false);
  const again = generation.value;
  const loaded = useRef(false);

  useEffect(() => {
    const stop = new AbortController();
    // The rows that arrive while the list is read are newer than what it says.
    const meanwhile = new Map<string, TurnRow>();
    loaded.current = false;
    const load = async () => {
      try {
        const page = await get<{ turns: TurnRow[]; next?: string | null }>(`/turns?${query ? `${query}&` : ""}limit=${PAGE}`, stop.signal);
        loaded.current = true;
        const kept = page.turns.filter((row) => !meanwhile.has(row.task));
        setRows([...[...meanwhile.values()].reverse().filter((row) => fits(row, wanted)), ...kept]);
        setNext(page.next ?? null);
        setError(null);
      } catch (failure) {
        if (!stop.signal.aborted) setError(why(failure));
      }
    };
    void load();
    const off = onTurn((row) => {
      if (!loaded.current) {
        meanwhile.set(row.task, row);
        return;
      }
      setRows((known) => {
        const all = known ?? [];
        const at = all.findIndex((one) => one.task === row.task);
        const old = all[at];
        if (!fits(row, wanted)) return old ? all.filter((one) => one !== old) : all;
        const merged = old ? { ...old, ...row, text: row.text ?? old.text ?? null } : row;
        // A step of a turn moves nothing; a new state does.
        if (old && old.at === row.at) return all.map((one) => (one === old ? merged : one));
        return [merged, ...all.filter((one) => one !== old)].slice(0, KEPT);
      });
      setFresh((known) => new Set([row.task, ...known].slice(0, 20)));
      setTimeout(() => setFresh((known) => new Set([...known].filter((task) => task !== row.task))), 1_500);
    });
    return () => {
      stop.abort();
      off();
    };
  }, [query, again]);

  const more = async () => {
    if (!next) return;
    setOlder(true);
    try {
      const page = await get<{ turns: TurnRow[]; next?: string | null }>(`/turns?${query ? `${query}&` : ""}limit=${PAGE}&after=${encodeURIComponent(next)}`);
      setRows((known) => {
        const have = new Set((known ?? []).map((row) => row.task));
        return [...(known ?? []), ...page.turns.filter((row) => !have.has(row.task))];
      });
      setNext(page.next ?? null);
    } catch (failure) {
      setError(why(failure));
    }
    setOlder(false);
  };

  return (
    <>
      <div class="row between">
        <Heading>Turns</Heading>
        <span class="row">
          <State of={connection.value} />
        </span>
      </div>
      <Filters />
      {error && <Failed what={error} />}
      {rows === null && !error && <Empty>Reading …</Empty>}
      {rows?.length === 0 &&
        (query ? (
          <Empty>
            No turn fits.{" "}
            <button type="button" class="small" onClick={() => refine(Object.fromEntries(FILTERS.map((name) => [name, null])))}>
              Clear the filters
            </button>
          </Empty>
        ) : (
          <Empty>
            <NothingYet />
          </Empty>
        ))}
      {rows && rows.length > 0 && <List rows={rows} fresh={fresh} wanted={wanted} />}
      {next && (
        <p class="center">
          <button type="button" disabled={older} onClick={() => void more()}>
            {older ? "Reading …" : "Older turns"}
          </button>
        </p>
      )}
    </>
  );
}

/** What to do where there is nothing to see. */
export function NothingYet() {
  return (
    <>
      Nothing yet; send a message with <code class="break">talaria send {plain(status.value?.url ?? "URL")} hello</code>, or <a href={href("try")}>try it here</a>.
    </>
  );
}

function Filters() {
  const { params } = route.value;
  const [text, setText] = useState(params.get("search") ?? "");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const given = params.get("search") ?? "";
  useEffect(() => setText(given), [given]);
  const type = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => refine({ search: value.trim() }), TYPING);
  };
  const names = (executors.value ?? []).map((executor) => executor.name);
  const executor = params.get("executor") ?? "";
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label class="grow">
        <span class="sr-only">Search in tasks, contexts and messages</span>
        <input type="search" id="search" placeholder="Search messages, tasks, contexts   ( / )" value={text} maxLength={200} onInput={(event) => type(event.currentTarget.value)} />
      </label>
      <label>
        <span class="sr-only">State</span>
        <select value={params.get("state") ?? ""} onChange={(event) => refine({ state: event.currentTarget.value })}>
          <option value="">Any state</option>
          {STATES.map((state) => (
            <option key={state} value={state}>
              {state}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span class="sr-only">Executor</span>
        <select value={executor} onChange={(event) => refine({ executor: event.currentTarget.value })}>
          <option value="">Any executor</option>
          {[...new Set([...names, ...(executor ? [executor] : [])])].map((name) => (
            <option key={name} value={name}>
              {plain(name, 60)}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span class="sr-only">Owner</span>
        <input class="narrow" placeholder="Any owner" title="The name of a caller; - for callers without one" value={params.get("owner") ?? ""} maxLength={200} onChange={(event) => refine({ owner: event.currentTarget.value.trim() })} />
      </label>
      {params.get("context") && (
        <button type="button" class="tag" onClick={() => refine({ context: null })}>
          context {plain(params.get("context"), 12)} ✕<span class="sr-only"> remove this filter</span>
        </button>
      )}
    </form>
  );
}

function List({ rows, fresh, wanted }: { rows: TurnRow[]; fresh: Set<string>; wanted: Record<string, string> }) {
  const time = now.value;
  return (
    <div class="panel flush">
      <table class="turns">
        <caption class="sr-only">Turns, the newest first</caption>
        <thead>
          <tr>
            <th scope="col">State</th>
            <th scope="col">Message</th>
            <th scope="col">Executor</th>
            <th scope="col">Owner</th>
            <th scope="col" class="right">
              Took
            </th>
            <th scope="col" class="right">
              When
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.task} class={fresh.has(row.task) ? "fresh" : ""} data-task={row.task}>
              <td>
                <State of={row.state} />
              </td>
              <td class="cell-text">
                <a href={href("turns", row.task, wanted)} data-row>
                  {row.text ? <Text of={row.text} /> : <code>{row.task.slice(0, 8)}</code>}
                </a>
                {row.timeline?.reason && (
                  <span class="why">
                    <Text of={row.timeline.reason} />
                  </span>
                )}
              </td>
              <td class="cell-executor">
                <Text of={row.executor ?? "–"} />
              </td>
              <td class="cell-owner muted">
                <Text of={row.owner ?? "anyone"} />
              </td>
              <td class="num right cell-took">{row.timeline ? <Took row={row} time={time} /> : "–"}</td>
              <td class="num right muted cell-when">
                <time dateTime={row.at} title={row.at}>
                  {ago(row.at, time)}
                </time>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Took({ row, time }: { row: TurnRow; time: number }) {
  const timeline = row.timeline;
  if (!timeline) return null;
  const runs = timeline.state === "running" || timeline.state === "queued";
  return <>{ms(runs ? Math.max(timeline.total_ms, time - new Date(timeline.accepted).getTime()) : timeline.total_ms)}</>;
}
