// @a2a-js/sdk: everything that its client offers, in 1.0 and in 0.3, over both bindings.
//
// It takes and prints what ../harness.py says.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

import {
  ListTasksRequest, Role, SendMessageRequest, StreamResponse, TaskPushNotificationConfig, TaskState,
} from '@a2a-js/sdk';
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from '@a2a-js/sdk/client';
import { TaskNotFoundError } from '@a2a-js/sdk/errors';

// As in ../harness.py.
const DEADLINE = 30_000;
const DELIVERY = 10_000;
const TOTAL = 300_000;
const CREDENTIALS = 'interop-credentials';
const TOKEN = 'interop-token';

const BINDINGS = { 'JSON-RPC': 'JSONRPC', 'HTTP+JSON': 'HTTP+JSON' };
const LEGACY = { legacyCompat: { enabled: true } };

/** A webhook receiver on loopback. Every inbox has a path of its own. */
class Webhooks {
  #inboxes = new Map();
  #server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const inbox = this.#inboxes.get(request.url);
    inbox?.take(request.headers, JSON.parse(Buffer.concat(chunks).toString()));
    response.writeHead(inbox ? 200 : 404).end();
  });

  async open() {
    this.#server.listen(0, '127.0.0.1').unref();
    await once(this.#server, 'listening');
    return this;
  }

  inbox() {
    const path = `/${randomUUID()}`;
    const inbox = new Inbox(`http://127.0.0.1:${this.#server.address().port}${path}`);
    this.#inboxes.set(path, inbox);
    return inbox;
  }
}

/** What was delivered to one address. */
class Inbox {
  deliveries = [];
  #arrived = () => {};

  constructor(url) {
    this.url = url;
  }

  take(headers, body) {
    this.deliveries.push({ headers, body });
    this.#arrived();
  }

  /** The deliveries up to the first whose body satisfies `last`. */
  async until(last) {
    const late = pause(DELIVERY, true, { ref: false });
    for (;;) {
      const end = this.deliveries.findIndex(({ body }) => last(body));
      if (end >= 0) return this.deliveries.slice(0, end + 1);
      const arrived = new Promise((resolve) => { this.#arrived = resolve; });
      const seen = JSON.stringify(this.deliveries.map(({ body }) => body));
      assert(!(await Promise.race([arrived, late])), `${DELIVERY} ms without the last delivery; there were ${seen}`);
    }
  }
}

/** One version and one binding. */
class Case {
  constructor(url, version, binding, webhooks) {
    Object.assign(this, { url, version, binding, webhooks });
  }

  operations() {
    return [
      ['card', () => this.card()],
      ['send', () => this.send()],
      ['errors', () => this.errors()],
      ['stream', () => this.stream()],
      ['resubscribe', () => this.resubscribe()],
      ['follow', () => this.follow()],
      ['cancel', () => this.cancel()],
      // There is no such operation in 0.3.
      ...(this.version === '1.0' ? [['list', () => this.list()]] : []),
      ['push configs', () => this.pushConfigs()],
      ['push delivery', () => this.pushDelivery()],
      ['push inline', () => this.pushInline()],
    ];
  }

  async card() {
    const resolver = new DefaultAgentCardResolver(LEGACY);
    const card = await resolver.resolve(this.url);
    // The client prefers 1.0 where the card has both, so 0.3 must be all that is left.
    card.supportedInterfaces = card.supportedInterfaces.filter(
      (one) => one.protocolVersion === this.version && one.protocolBinding === this.binding);
    assert.equal(card.supportedInterfaces.length, 1, `interfaces for ${this.version} over ${this.binding}`);
    this.offered = card.capabilities;
    assert(this.offered.streaming);
    const transports = [new JsonRpcTransportFactory(LEGACY), new RestTransportFactory(LEGACY)];
    const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports, cardResolver: resolver });
    this.client = await new ClientFactory(options).createFromAgentCard(card);
    assert.equal(this.client.protocolVersion, this.version);
    assert.equal((await this.client.getAgentCard()).name, card.name, 'name on the extended card');
  }

  message(prefix, { task, context, ...configuration } = {}) {
    return SendMessageRequest.fromJSON({
      message: {
        messageId: `${prefix}-${randomUUID()}`,
        role: 'ROLE_USER',
        parts: [{ text: 'hello' }],
        taskId: task?.id ?? '',
        contextId: context ?? '',
      },
      configuration,
    });
  }

  async sendForTask(prefix, options) {
    const task = await this.client.sendMessage(this.message(prefix, options));
    assert(task.status, `no task: ${JSON.stringify(task)}`);
    return task;
  }

  get(task) {
    return this.client.getTask({ id: task.id, tenant: '' });
  }

  subscribe(task, options) {
    return this.client.resubscribeTask({ id: task.id, tenant: '' }, options);
  }

  /** The task that a stream tells of: its first snapshot and every update to it. */
  folded([first, ...events]) {
    assert.equal(first.payload.$case, 'task', 'the first event');
    const task = first.payload.value;
    // This client loses `append` in 0.3 over HTTP+JSON.
    const appends = this.version === '0.3' && this.binding === 'HTTP+JSON';
    for (const { payload: { $case, value } } of events) {
      if ($case === 'statusUpdate') {
        task.status = value.status;
      } else {
        assert.equal($case, 'artifactUpdate', 'an event after the first');
        const known = task.artifacts.find((artifact) => artifact.artifactId === value.artifact.artifactId);
        if (known && (value.append || appends)) known.parts.push(...value.artifact.parts);
        else task.artifacts.push(value.artifact);
      }
    }
    return task;
  }

  async send() {
    const task = await this.sendForTask('tck-artifact-data');
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.equal(task.artifacts[0].parts[0].content.value.count, 42);
    assert.deepEqual(await this.get(task), task);
    const message = await this.client.sendMessage(this.message('tck-message-response'));
    assert.equal(message.parts[0].content.value, 'Direct message response');
  }

  async errors() {
    await assert.rejects(this.get({ id: 'no-such-task' }), TaskNotFoundError);
  }

  async stream() {
    const task = this.folded(await all(this.client.sendMessageStream(this.message('tck-stream-artifact-chunked'))));
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.deepEqual(content(task), { 'tck-artifact': 'chunk-1 chunk-2' });
    sameness(task, await this.get(task));
  }

  async resubscribe() {
    const hangUp = new AbortController();
    const stream = this.client.sendMessageStream(
      this.message('test-resubscribe-message-id'), { signal: hangUp.signal });
    const { id } = (await stream.next()).value.payload.value;
    // In the middle: the turn works, and goes on for seconds.
    const working = (await stream.next()).value.payload.value;
    assert.equal(working.status.state, TaskState.TASK_STATE_WORKING);
    hangUp.abort();
    const task = this.folded(await all(this.subscribe({ id })));
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    sameness(task, await this.get(task));
  }

  /** A task that waits for input, and turns that happen while nobody listens. */
  async follow() {
    const asked = await this.sendForTask('tck-input-required');
    assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const hangUp = new AbortController();
    const cut = this.subscribe(asked, { signal: hangUp.signal });
    assert.equal((await cut.next()).value.payload.$case, 'task');
    await this.sendForTask('tck-input-required', { task: asked });
    await cut.next();
    hangUp.abort();
    await this.sendForTask('tck-input-required', { task: asked });
    const stream = this.subscribe(asked);
    const first = (await stream.next()).value;
    const said = first.payload.value.history.filter((message) => message.role === Role.ROLE_USER);
    assert.equal(said.length, 3, 'messages of the user in the snapshot');
    await this.sendForTask('tck-stream-artifact-chunked', { task: asked });
    const task = this.folded([first, ...await all(stream)]);
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    sameness(task, await this.get(task));
  }

  async cancel() {
    const task = await this.sendForTask('tck-cancel', { returnImmediately: true });
    const stream = this.subscribe(task);
    const first = (await stream.next()).value;
    const canceled = await this.client.cancelTask({ id: task.id, tenant: '', metadata: {} });
    for (const seen of [canceled, this.folded([first, ...await all(stream)]), await this.get(task)]) {
      assert.equal(seen.status.state, TaskState.TASK_STATE_CANCELED);
    }
  }

  async list() {
    const tasks = [await this.sendForTask('tck-complete-task')];
    const context = tasks[0].contextId;
    for (let i = 0; i < 2; i += 1) tasks.unshift(await this.sendForTask('tck-complete-task', { context }));
    const seen = [];
    let pageToken = '';
    do {
      const page = await this.client.listTasks(
        ListTasksRequest.fromJSON({ contextId: context, pageSize: 2, pageToken }));
      assert.equal(page.totalSize, 3);
      seen.push(...page.tasks.map((task) => task.id));
      pageToken = page.nextPageToken;
    } while (pageToken);
    assert.deepEqual(seen, tasks.map((task) => task.id), 'tasks, newest first');
  }

  push(inbox, task) {
    return TaskPushNotificationConfig.fromJSON({
      id: randomUUID(),
      taskId: task?.id ?? '',
      url: inbox.url,
      token: TOKEN,
      authentication: { scheme: 'Bearer', credentials: CREDENTIALS },
    });
  }

  async pushConfigs() {
    assert(this.offered.pushNotifications, 'the card does not offer push notifications');
    const task = await this.sendForTask('tck-input-required');
    const ours = { taskId: task.id, tenant: '' };
    const listed = async () => {
      const page = await this.client.listTaskPushNotificationConfig({ ...ours, pageSize: 0, pageToken: '' });
      return page.configs.map((config) => config.id).sort();
    };
    const made = [];
    for (let i = 0; i < 2; i += 1) {
      made.push(await this.client.createTaskPushNotificationConfig(this.push(this.webhooks.inbox(), task)));
    }
    const got = await this.client.getTaskPushNotificationConfig({ ...ours, id: made[0].id });
    assert.deepEqual([got.id, got.taskId, got.url], [made[0].id, task.id, made[0].url]);
    assert.deepEqual(await listed(), made.map((config) => config.id).sort());
    await this.client.deleteTaskPushNotificationConfig({ ...ours, id: made[0].id });
    assert.deepEqual(await listed(), [made[1].id], 'configurations after one was deleted');
  }

  async pushDelivery() {
    const kept = this.webhooks.inbox();
    const deleted = this.webhooks.inbox();
    const task = await this.sendForTask('tck-input-required');
    await this.client.createTaskPushNotificationConfig(this.push(kept, task));
    const gone = await this.client.createTaskPushNotificationConfig(this.push(deleted, task));
    await this.client.deleteTaskPushNotificationConfig({ taskId: task.id, tenant: '', id: gone.id });
    await this.sendForTask('tck-stream-artifact-chunked', { task });
    await this.delivered(kept, task);
    assert.deepEqual(deleted.deliveries, [], 'a deleted configuration was delivered to');
  }

  async pushInline() {
    const inbox = this.webhooks.inbox();
    const options = { taskPushNotificationConfig: TaskPushNotificationConfig.toJSON(this.push(inbox)) };
    await this.delivered(inbox, await this.sendForTask('tck-artifact-text', options));
  }

  /** 1.0: every event of the task, up to its end. 0.3: the task each time. With its credentials. */
  async delivered(inbox, task) {
    const old = this.version === '0.3';
    const deliveries = await inbox.until((body) => (old
      ? body.status?.state === 'completed'
      : (body.statusUpdate ?? body.task)?.status?.state === 'TASK_STATE_COMPLETED'));
    let artifacts = 0;
    for (const { headers, body } of deliveries) {
      assert.equal(headers.authorization, `Bearer ${CREDENTIALS}`);
      assert.equal(headers['x-a2a-notification-token'], TOKEN);
      assert.equal(headers['content-type'].split(';')[0], old ? 'application/json' : 'application/a2a+json');
      const { $case, value } = old ? { $case: 'task', value: body } : StreamResponse.fromJSON(body).payload;
      assert.equal($case === 'task' ? value.id : value.taskId, task.id);
      artifacts += $case === 'artifactUpdate' || (value.artifacts ?? []).length;
    }
    assert(artifacts, 'no artifact was delivered');
  }
}

async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** A task holds the text of an artifact in one piece, however it was streamed. */
function content(task) {
  return Object.fromEntries(task.artifacts.map((artifact) =>
    [artifact.artifactId, artifact.parts.map((part) => part.content.value).join('')]));
}

/** What the stream told is what the task is. */
function sameness(told, got) {
  assert.equal(told.id, got.id);
  assert.deepEqual(told.status, got.status);
  assert.deepEqual(content(told), content(got));
}

async function run(client, binding, operations) {
  for (const [operation, perform] of operations) {
    const start = performance.now();
    let error = null;
    try {
      const late = pause(DEADLINE, true, { ref: false });
      assert(!(await Promise.race([perform(), late])), `no end after ${DEADLINE} ms`);
    } catch (thrown) {
      error = thrown.stack ?? String(thrown);
    }
    const seconds = (performance.now() - start) / 1000;
    console.log(JSON.stringify({ client, binding, operation, seconds, error }));
  }
}

setTimeout(() => process.exit(1), TOTAL).unref();
const installed = new URL('node_modules/@a2a-js/sdk/package.json', import.meta.url);
const { version: sdk } = JSON.parse(await readFile(installed, 'utf8'));
const webhooks = await new Webhooks().open();
await Promise.all(['1.0', '0.3'].flatMap((version) => Object.entries(BINDINGS).map(([name, binding]) => {
  const one = new Case(process.argv[2], version, binding, webhooks);
  return run(`@a2a-js/sdk ${sdk} (${version})`, name, one.operations());
})));
