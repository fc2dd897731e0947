// Charts: the picture by uPlot, the exact values under the pointer, and the same values as a table for those who want numbers
// or cannot see the picture. uPlot is drawn anew when the width or the theme changes, and fed otherwise.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { isDark } from "./theme";

export interface Line {
  label: string;
  /** A custom property of the style sheet. */
  colour: string;
  values: (number | null)[];
  fill?: boolean;
  bars?: boolean;
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  show: (value: number | null | undefined) => string;
  note?: string | undefined;
  /** Ticks at powers of two. */
  binary?: boolean;
}

const BINARY = Array.from({ length: 40 }, (_, power) => 2 ** power);

const HEIGHT = 160;
/** The seconds that a chart shows at least, and those after the last value, so that its bar is whole. */
const LEAST = 600;
const AFTER = 5;

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function Chart({ title, times, lines, show, note, binary }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState<number | null>(null);
  const dark = isDark.value;
  const names = lines.map((line) => line.label).join();

  useEffect(() => {
    const parent = box.current;
    if (!parent || asTable) return;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: parent.clientWidth || 300,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
        padding: [8, 6, 0, 0],
        scales: { x: { range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - LEAST), (high ?? 0) + AFTER] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? (high ?? 1) * 1.08 : 1] } },
        axes: [
          { ...axis, size: 26, gap: 4, space: 70, values: (_, splits) => splits.map((split) => new Date(split * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
          { ...axis, size: 62, space: 32, ...(binary ? { incrs: BINARY } : {}), values: (_, splits) => splits.map((split) => show(split)) },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label,
            stroke: css(line.colour),
            width: line.bars ? 0 : 1.5,
            spanGaps: false,
            points: { show: !line.bars && line.values.filter((value) => value !== null).length < 60, size: 4 },
            ...(line.bars && uPlot.paths.bars ? { paths: uPlot.paths.bars({ size: [0.8, 8] }), fill: css(line.colour) } : {}),
            ...(line.fill ? { fill: `${css(line.colour)}22` } : {}),
          })),
        ],
        hooks: { setCursor: [(self) => setAt(self.cursor.idx ?? null)] },
      },
      [times, ...lines.map((line) => line.values)],
      parent,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (parent.clientWidth > 0 && parent.clientWidth !== made.width) made.setSize({ width: parent.clientWidth, height: HEIGHT });
    });
    watch.observe(parent);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [asTable, dark, names]);

  useEffect(() => {
    plot.current?.setData([times, ...lines.map((line) => line.values)]);
  }, [times, lines]);

  const last = times.length - 1;
  const shown = at ?? last;
  return (
    <section class="panel chart" aria-label={title}>
      <header class="panel-head">
        <h2>{title}</h2>
        <button type="button" class="small" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {asTable ? "Chart" : "Table"}
          <span class="sr-only"> of {title}</span>
        </button>
      </header>
      <p class="legend">
        {lines.map((line) => (
          <span key={line.label}>
            <span class={`swatch swatch${line.colour}`} aria-hidden="true" />
            {line.label} <b class="num">{show(line.values[shown])}</b>
          </span>
        ))}
        <span class="muted num">{times[shown] === undefined ? "" : `${at === null ? "last, " : ""}${time(times[shown])}`}</span>
      </p>
      {asTable ? <Table title={title} times={times} lines={lines} show={show} /> : <div class="plot" ref={box} aria-hidden="true" />}
      {note && <p class="muted small-text">{note}</p>}
    </section>
  );
}

function time(seconds: number | undefined): string {
  return seconds === undefined ? "" : new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function Table({ title, times, lines, show }: Omit<Props, "note" | "binary">) {
  const filled = times.map((at, index) => ({ at, index })).filter(({ index }) => lines.some((line) => line.values[index]));
  if (filled.length === 0) return <p class="muted pad">Nothing in the last hour.</p>;
  return (
    <div class="scroll short" tabIndex={0} role="region" aria-label={`${title}, table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map((line) => (
              <th scope="col" class="right" key={line.label}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {filled.reverse().map(({ at, index }) => (
            <tr key={at}>
              <td class="num">{time(at)}</td>
              {lines.map((line) => (
                <td class="num right" key={line.label}>
                  {show(line.values[index])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A line without axes; the card beside it has the numbers. */
export function Spark({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.filter((value): value is number => value !== null);
  const top = Math.max(...known, 0);
  if (known.length === 0) return <div class="spark spark-empty">no turns in the last hour</div>;
  const [width, height] = [240, 36];
  const x = (index: number) => (values.length < 2 ? width / 2 : (index / (values.length - 1)) * (width - 4) + 2);
  const y = (value: number) => height - 3 - (top > 0 ? value / top : 0) * (height - 8);
  const points = values.map((value, index) => (value === null ? null : `${x(index).toFixed(1)},${y(value).toFixed(1)}`)).filter((point) => point !== null);
  const lastPoint = points[points.length - 1]?.split(",") ?? ["0", "0"];
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 && <polyline points={points.join(" ")} vector-effect="non-scaling-stroke" />}
      <path d={`M${lastPoint[0]} ${lastPoint[1]}h0`} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
