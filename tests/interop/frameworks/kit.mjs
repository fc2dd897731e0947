// What the drivers of the JavaScript frameworks share; ../framework.py says what they do, ../harness.py what they print.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

// As in ../harness.py.
const DEADLINE = 30_000;
const TOTAL = 300_000;
export const CREDENTIALS = 'interop-credentials';

/** What an approval is asked for with. */
export const QUESTION = 'The agent asks for approval';
/** One grey pixel, in base64. */
export const IMAGE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==';

// Frameworks print to standard output; only the lines of results must get there.
const print = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);

const { values, positionals } = parseArgs({
  options: { runs: { type: 'string' }, auth: { type: 'string' } },
  allowPositionals: true,
});
/** Where the bridge listens: `url` streams, `runs` asks and tells of its progress, `auth` wants a token. */
export const BRIDGES = { url: positionals[0], ...values };

/** The answer to a text, after those others. */
export function heard(text, ...prior) {
  return `heard: ${text} | prior=[${prior.map((said) => `'${said}'`).join(', ')}]`;
}

/** The answer to a text beside the image. */
export const seen = (text) => `${heard(text)} | images=['image/png']`;

/** The answer to `danger`, once it was approved. */
export const APPROVED = `${heard('danger')} | approval=once`;

export function card(url) {
  return `${url}/.well-known/agent-card.json`;
}

/** A `fetch` that carries the token. */
export function authorized(url, options = {}) {
  const headers = new Headers(options.headers);
  headers.set('authorization', `Bearer ${CREDENTIALS}`);
  return fetch(url, { ...options, headers });
}

/** The version of an installed package. */
export function version(name) {
  const [path] = createRequire(import.meta.url).resolve.paths(name);
  return createRequire(import.meta.url)(`${path}/${name}/package.json`).version;
}

/** Runs the operations, `{name: async function}`, and ends the process: a framework's timers do not keep it. */
export async function run(name, operations) {
  setTimeout(() => process.exit(1), TOTAL).unref();
  for (const [operation, body] of Object.entries(operations)) {
    const start = performance.now();
    let error = null;
    try {
      await within(body());
    } catch (failure) {
      error = failure?.stack ?? String(failure);
    }
    const seconds = (performance.now() - start) / 1000;
    const line = { client: `${name} ${version(name)}`, binding: '', operation, seconds, error };
    await new Promise((done) => { print(`${JSON.stringify(line)}\n`, done); });
  }
  process.exit(0);
}

function within(promise) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no end within ${DEADLINE} ms`)), DEADLINE).unref();
  });
  return Promise.race([promise, late]);
}

/** Compares texts. A line feed at the end is no difference. */
export function same(actual, expected) {
  assert.equal(actual.replace(/\n$/, ''), expected);
}

/** Everything that a stream gives. */
export async function collect(stream) {
  const all = [];
  for await (const one of stream) all.push(one);
  return all;
}

/** A call that must fail. */
export async function refused(call) {
  await assert.rejects(call, undefined, 'answered without a token');
}
