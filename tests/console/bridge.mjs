// The real binary with a configuration, in a folder of its own, and a small client of A2A that plays the caller.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PATIENCE = 120_000;

export const root = process.env.TALARIA_ROOT;

export class Bridge {
  /** Starts it and waits until it is ready. `flags` follow `serve`. */
  static async start(config, { flags = [], env = {}, folder } = {}) {
    const bridge = new Bridge();
    bridge.folder = folder ?? (await mkdtemp(join(tmpdir(), 'talaria-console-')));
    // Uploads go there.
    await mkdir(join(bridge.folder, 'executors'), { recursive: true });
    const admin = config.includes('[admin]') ? '' : '[admin]\nlisten = "127.0.0.1:0"\n';
    await writeFile(join(bridge.folder, 'talaria.toml'), `${config}\n${admin}`);
    bridge.log = '';
    bridge.child = spawn(process.env.TALARIA, ['serve', '--listen', '127.0.0.1:0', '--output', 'json', ...flags], {
      cwd: bridge.folder,
      env: { XDG_CACHE_HOME: process.env.TALARIA_CACHE, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    bridge.child.stderr.on('data', (data) => (bridge.log = (bridge.log + data).slice(-20_000)));
    const late = setTimeout(() => bridge.child.kill('SIGKILL'), PATIENCE);
    let out = '';
    await new Promise((resolve) => {
      bridge.child.stdout.on('data', (data) => {
        out += data;
        try {
          const banner = JSON.parse(out);
          bridge.url = banner.url;
          bridge.admin = banner.admin;
          resolve();
        } catch {
          // Not the whole banner yet.
        }
      });
      bridge.child.once('exit', resolve);
    });
    clearTimeout(late);
    if (!bridge.admin) throw new Error(`talaria did not start:\n${bridge.log}`);
    return bridge;
  }

  async stop({ keep = false } = {}) {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = once(this.child, 'exit');
      this.child.kill('SIGKILL');
      await ended;
    }
    if (!keep) await rm(this.folder, { recursive: true, force: true });
  }

  /** Sends a message and returns the task as it is then, without waiting for the end of its turn. */
  async send(text, { task, executor, id = randomUUID() } = {}) {
    const message = { messageId: id, role: 'ROLE_USER', parts: [{ text }] };
    if (task) message.taskId = task;
    if (executor) message.metadata = { 'talaria/executor': executor };
    const params = { message, configuration: { returnImmediately: true } };
    const { result, error } = await this.call('SendMessage', params);
    if (error) throw new Error(JSON.stringify(error));
    return result.task ?? { id: result.message.taskId };
  }

  async call(method, params) {
    const response = await fetch(this.url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'A2A-Version': '1.0' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    });
    return response.json();
  }
}

export function component(name) {
  return join(root, 'guests/dist', `${name}.wasm`);
}

/** The bytes of a component whose texts of one length were replaced by others. */
export async function patched(name, replacements) {
  let bytes = await readFile(component(name), 'latin1');
  for (const [from, to] of replacements) {
    if (from.length !== to.length || !bytes.includes(from)) throw new Error(`${from} cannot become ${to}`);
    bytes = bytes.replaceAll(from, to);
  }
  return Buffer.from(bytes, 'latin1');
}
