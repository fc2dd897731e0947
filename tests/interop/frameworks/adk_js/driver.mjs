// @google/adk: `RemoteA2AAgent`, as a runner runs it. It always streams.

import assert from 'node:assert/strict';

import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';
import { InMemoryRunner, isFinalResponse, RemoteA2AAgent } from '@google/adk';

import { APPROVED, authorized, BRIDGES, collect, heard, IMAGE, QUESTION, run, same, seen } from './kit.mjs';

/** A session with the remote agent. */
class Conversation {
  constructor(url, options = {}) {
    // It knows questions of other ADK agents only; what answers any other must be told the task that asks.
    const beforeRequestCallbacks = [(_, { message }) => { message.taskId = this.asking; }];
    const agent = new RemoteA2AAgent({ name: 'remote', agentCard: url, beforeRequestCallbacks, ...options });
    this.runner = new InMemoryRunner({ agent, appName: 'interop' });
  }

  async events(...parts) {
    const { runner } = this;
    this.session ??= await runner.sessionService.createSession({ appName: 'interop', userId: 'user' });
    const newMessage = { role: 'user', parts: parts.map((part) => (typeof part === 'string' ? { text: part } : part)) };
    const events = await collect(runner.runAsync({ userId: 'user', sessionId: this.session.id, newMessage }));
    const last = events.at(-1)?.customMetadata?.['a2a:response'];
    this.asking = last?.status?.state === 'input-required' ? last.taskId : undefined;
    return events;
  }

  /** The text that a program reads: the last final response that has one. */
  async say(...parts) {
    const events = await this.events(...parts);
    const errors = events.map((event) => event.errorMessage).filter(Boolean);
    assert.deepEqual(errors, []);
    const final = events.filter((event) => isFinalResponse(event) && text(event)).at(-1);
    assert(final, `no final response has a text: ${JSON.stringify(events.map((e) => [e.partial, text(e)]))}`);
    return text(final);
  }
}

function text(event) {
  return (event.content?.parts ?? []).filter((part) => !part.thought).map((part) => part.text ?? '').join('');
}

async function stream(url, said) {
  same(await new Conversation(url).say(said), heard(said));
}

async function turns() {
  const conversation = new Conversation(BRIDGES.url);
  await conversation.say('one');
  await conversation.say('two');
  same(await conversation.say('three'), heard('three', 'one', 'two'));
}

async function approval() {
  const conversation = new Conversation(BRIDGES.runs);
  const asked = await conversation.events('danger');
  assert(asked.some((event) => text(event).includes(QUESTION)), JSON.stringify(asked));
  same(await conversation.say('yes'), APPROVED);
  same(await conversation.say('after'), heard('after', 'danger'));
}

async function file() {
  const image = { inlineData: { mimeType: 'image/png', data: IMAGE, displayName: 'dot.png' } };
  same(await new Conversation(BRIDGES.url).say('look', image), seen('look'));
}

async function auth() {
  const events = await new Conversation(BRIDGES.auth).events('hello').catch((error) => [{ errorMessage: `${error}` }]);
  assert(events.some((event) => event.errorMessage), 'answered without a token');
  const clientFactory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: authorized })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl: authorized }),
  }));
  same(await new Conversation(BRIDGES.auth, { clientFactory }).say('hello'), heard('hello'));
}

await run('@google/adk', {
  stream: () => stream(BRIDGES.url, 'hello there'),
  progress: () => stream(BRIDGES.runs, 'busy there'),
  turns,
  approval,
  file,
  auth,
});
