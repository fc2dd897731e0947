// A form made from the JSON Schema of a component's settings: texts, numbers, switches, choices, lists of texts, and objects of
// these. What it does not know is a field of JSON, so that nothing that a component declares is out of reach. The component's
// author wrote the schema: its texts are text, its pattern is not run (it could take for ever), and the bridge checks the
// whole again.
import { useMemo, useState } from "preact/hooks";
import { Text, plain } from "./text";
import type { Schema } from "./types";
import { Failed } from "./ui";

type Value = unknown;
type Path = string[];

const DEEPEST = 4;

export interface Problem {
  path: string;
  says: string;
}

type Kind = "text" | "number" | "integer" | "switch" | "choice" | "texts" | "object" | "json";

export function kindOf(schema: Schema, depth = 0): Kind {
  if (Array.isArray(schema.enum) && schema.enum.every((value) => ["string", "number", "boolean"].includes(typeof value))) return "choice";
  const type = Array.isArray(schema.type) ? schema.type.filter((one) => one !== "null") : [schema.type];
  if (type.length !== 1) return "json";
  switch (type[0]) {
    case "string":
      return "text";
    case "number":
      return "number";
    case "integer":
      return "integer";
    case "boolean":
      return "switch";
    case "array":
      return schema.items && schema.items.type === "string" && !schema.items.enum ? "texts" : "json";
    case "object":
      return schema.properties && depth < DEEPEST ? "object" : "json";
    default:
      return "json";
  }
}

/** What is wrong with a value, for those constructs that the form has fields for. */
export function problems(schema: Schema, value: Value, path: Path = [], depth = 0): Problem[] {
  const at = path.join(".") || "settings";
  const wrong = (says: string): Problem[] => [{ path: at, says }];
  if (value === undefined) return [];
  if (value instanceof Unreadable) return wrong(value.says);
  const found: Problem[] = [];
  switch (kindOf(schema, depth)) {
    case "number":
    case "integer": {
      if (typeof value !== "number" || !Number.isFinite(value)) return wrong("is a number");
      if (kindOf(schema) === "integer" && !Number.isInteger(value)) return wrong("is a whole number");
      if (schema.minimum !== undefined && value < schema.minimum) return wrong(`is at least ${schema.minimum}`);
      if (schema.maximum !== undefined && value > schema.maximum) return wrong(`is at most ${schema.maximum}`);
      if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) return wrong(`is more than ${schema.exclusiveMinimum}`);
      if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum) return wrong(`is less than ${schema.exclusiveMaximum}`);
      return [];
    }
    case "text":
      if (typeof value !== "string") return wrong("is a text");
      if (schema.minLength !== undefined && [...value].length < schema.minLength) return wrong(`has at least ${schema.minLength} characters`);
      if (schema.maxLength !== undefined && [...value].length > schema.maxLength) return wrong(`has at most ${schema.maxLength} characters`);
      return [];
    case "choice":
      return schema.enum?.includes(value) ? [] : wrong(`is one of ${schema.enum?.map(String).join(", ")}`);
    case "texts":
      if (!Array.isArray(value)) return wrong("is a list");
      if (schema.minItems !== undefined && value.length < schema.minItems) return wrong(`has at least ${schema.minItems} lines`);
      if (schema.maxItems !== undefined && value.length > schema.maxItems) return wrong(`has at most ${schema.maxItems} lines`);
      return [];
    case "object": {
      if (!isObject(value)) return wrong("is an object");
      for (const name of schema.required ?? []) {
        if (value[name] === undefined) found.push({ path: [...path, name].join("."), says: "is required" });
      }
      for (const [name, property] of Object.entries(schema.properties ?? {})) found.push(...problems(property, value[name], [...path, name], depth + 1));
      return found;
    }
    default:
      return [];
  }
}

/** What somebody typed into a field that takes JSON or a number, and that is neither yet. */
class Unreadable {
  constructor(
    readonly text: string,
    readonly says: string,
  ) {}
}

function isObject(value: Value): value is Record<string, Value> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Unreadable);
}

export function SettingsForm({ schema, settings, onSave, disabled }: { schema: Schema | null | undefined; settings: Record<string, unknown>; onSave: (settings: Record<string, unknown>) => Promise<void>; disabled: boolean }) {
  const given = JSON.stringify(settings);
  // What somebody changed here; without that, what is in effect is shown, whoever changes it.
  const [edited, setValue] = useState<Value>(null);
  const value = edited ?? settings;
  const [tried, setTried] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [saved, setSaved] = useState(false);
  const effective: Schema = useMemo(() => (schema && kindOf(schema) === "object" ? schema : { description: "All settings, as JSON" }), [schema]);
  const wrong = problems(effective, value);
  const changed = JSON.stringify(value) !== given;
  const save = async () => {
    setTried(true);
    setSaved(false);
    if (wrong.length > 0 || !isObject(value)) return;
    setBusy(true);
    setError(null);
    try {
      await onSave(value);
      setValue(null);
      setSaved(true);
      setTried(false);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setBusy(false);
  };
  return (
    <form
      class="settings pad"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <fieldset disabled={disabled || busy} class="bare">
        <Field id="set" name="settings" schema={effective} value={value} onChange={(next) => setValue(next ?? {})} depth={0} required problems={tried ? wrong : []} path={[]} />
      </fieldset>
      {error && <Failed what={error} />}
      {tried && wrong.length > 0 && <Failed what={`${wrong.length === 1 ? "One setting is" : `${wrong.length} settings are`} not right: ${wrong.map((one) => `${one.path} ${one.says}`).join("; ")}`} />}
      <div class="row end">
        <span class="muted" role="status">
          {busy ? "The bridge loads it with these settings and probes it …" : saved && !changed ? "In effect." : changed ? "Not saved." : ""}
        </span>
        <button type="button" disabled={!changed || busy} onClick={() => setValue(null)}>
          Undo
        </button>
        <button type="submit" class="primary" disabled={disabled || busy || !changed}>
          Save settings
        </button>
      </div>
    </form>
  );
}

interface FieldProps {
  id: string;
  name: string;
  schema: Schema;
  value: Value;
  onChange: (value: Value) => void;
  depth: number;
  required: boolean;
  problems: Problem[];
  path: Path;
}

function Field(props: FieldProps) {
  const { id, name, schema, value, onChange, depth, required, path } = props;
  const kind = kindOf(schema, depth);
  if (kind === "object") {
    const object = isObject(value) ? value : {};
    const body = Object.entries(schema.properties ?? {}).map(([key, property]) => (
      <Field
        key={key}
        id={`${id}-${key}`}
        name={key}
        schema={property}
        value={object[key]}
        onChange={(inner) => {
          const next = { ...object };
          if (inner === undefined) delete next[key];
          else next[key] = inner;
          onChange(Object.keys(next).length === 0 && !required ? undefined : next);
        }}
        depth={depth + 1}
        required={schema.required?.includes(key) ?? false}
        problems={props.problems}
        path={[...path, key]}
      />
    ));
    if (depth === 0) return <>{body.length > 0 ? body : <p class="muted">This component has no settings.</p>}</>;
    return (
      <fieldset class="nested">
        <legend>
          <Text of={schema.title ?? name} />
        </legend>
        {schema.description && <p class="hint"><Text of={schema.description} /></p>}
        {body}
      </fieldset>
    );
  }
  const says = props.problems.filter((one) => one.path === (path.join(".") || "settings")).map((one) => one.says);
  const described = `${id}-hint`;
  const common = { id, "aria-describedby": described, "aria-invalid": says.length > 0 };
  const preset = schema.default === undefined ? "" : plain(typeof schema.default === "string" ? schema.default : JSON.stringify(schema.default), 80);
  return (
    <div class={`field ${says.length > 0 ? "field-bad" : ""}`}>
      <label for={id}>
        <Text of={schema.title ?? name} />
        {required && <span class="muted"> required</span>}
      </label>
      {kind === "switch" && (
        <select {...common} value={value === undefined ? "" : String(value)} onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}>
          {(!required || value === undefined) && <option value="">default{preset && ` (${preset})`}</option>}
          <option value="true">true</option>
          <option value="false">false</option>
        </select>
      )}
      {kind === "choice" && (
        <select
          {...common}
          value={value === undefined ? "" : JSON.stringify(value)}
          onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : (JSON.parse(event.currentTarget.value) as Value))}
        >
          {(!required || value === undefined) && <option value="">default{preset && ` (${preset})`}</option>}
          {value !== undefined && !schema.enum?.includes(value) && <option value={JSON.stringify(value)}>{plain(value, 80)}</option>}
          {schema.enum?.map((one) => (
            <option key={String(one)} value={JSON.stringify(one)}>
              {plain(one, 80)}
            </option>
          ))}
        </select>
      )}
      {kind === "text" && <TextField common={common} schema={schema} value={value} preset={preset} onChange={onChange} />}
      {(kind === "number" || kind === "integer") && (
        <input
          {...common}
          type="text"
          inputMode={kind === "integer" ? "numeric" : "decimal"}
          placeholder={preset}
          value={value instanceof Unreadable ? value.text : value === undefined ? "" : String(value)}
          onInput={(event) => onChange(numberOf(event.currentTarget.value))}
        />
      )}
      {kind === "texts" && (
        <textarea
          {...common}
          rows={Math.min(8, Math.max(2, Array.isArray(value) ? value.length + 1 : 2))}
          placeholder={preset || "one in each line"}
          value={Array.isArray(value) ? value.join("\n") : ""}
          onInput={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value.split("\n"))}
          onBlur={() => Array.isArray(value) && onChange(value.filter((line) => line !== ""))}
        />
      )}
      {kind === "json" && (
        <textarea
          {...common}
          class="mono"
          rows={4}
          placeholder={preset || "JSON"}
          value={value instanceof Unreadable ? value.text : value === undefined ? "" : JSON.stringify(value, null, 2)}
          onChange={(event) => onChange(jsonOf(event.currentTarget.value))}
        />
      )}
      <p class="hint" id={described}>
        {says.map((one) => (
          <span class="why" key={one}>
            {name} {one}.{" "}
          </span>
        ))}
        {schema.description && <Text of={schema.description} />}
        {range(schema) && <span class="muted num"> {range(schema)}</span>}
        {kind === "texts" && <span class="muted"> One in each line.</span>}
        {kind === "json" && <span class="muted"> Given as JSON.</span>}
      </p>
    </div>
  );
}

function TextField({ common, schema, value, preset, onChange }: { common: object; schema: Schema; value: Value; preset: string; onChange: (value: Value) => void }) {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  const isLong = text.length > 60 || text.includes("\n") || /prompt|instruction|template/i.test(schema.title ?? schema.description ?? "");
  // An emptied field means the default, unless an empty text was there before or is required to differ from it.
  const take = (typed: string) => onChange(typed === "" && schema.default !== undefined && schema.default !== "" ? undefined : typed === "" && schema.default === undefined ? undefined : typed);
  return isLong ? (
    <textarea {...common} rows={3} placeholder={preset} value={text} onInput={(event) => take(event.currentTarget.value)} />
  ) : (
    <input {...common} type="text" placeholder={preset} value={text} onInput={(event) => take(event.currentTarget.value)} />
  );
}

function numberOf(text: string): Value {
  if (text.trim() === "") return undefined;
  const value = Number(text);
  return Number.isFinite(value) && !/\.$/.test(text.trim()) ? value : new Unreadable(text, "is a number");
}

function jsonOf(text: string): Value {
  if (text.trim() === "") return undefined;
  try {
    return JSON.parse(text) as Value;
  } catch (error) {
    return new Unreadable(text, `is not JSON: ${error instanceof Error ? error.message : ""}`);
  }
}

function range(schema: Schema): string {
  const { minimum: low, maximum: high } = schema;
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  if (low !== undefined) return `${low} or more`;
  return high !== undefined ? `${high} or less` : "";
}
