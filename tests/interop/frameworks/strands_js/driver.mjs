// @strands-agents/sdk: `A2AAgent`. It always streams, sends text only, and knows no conversation and no questions.

import assert from 'node:assert/strict';

import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';
import { A2AAgent } from '@strands-agents/sdk/a2a';

import { authorized, BRIDGES, collect, heard, refused, run, same } from './kit.mjs';

async function ask(text, url, options = {}) {
  return (await new A2AAgent({ url, ...options }).invoke(text)).toString();
}

async function stream(url, said) {
  const events = await collect(new A2AAgent({ url }).stream(said));
  assert(events.length > 2, 'nothing was streamed');
  same(events.at(-1).result.toString(), heard(said));
}

async function auth() {
  await refused(ask('hello', BRIDGES.auth));
  const clientFactory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: authorized })],
    cardResolver: new DefaultAgentCardResolver({ fetchImpl: authorized }),
  }));
  same(await ask('hello', BRIDGES.auth, { clientFactory }), heard('hello'));
}

await run('@strands-agents/sdk', {
  send: async () => same(await ask('hello there', BRIDGES.url), heard('hello there')),
  stream: () => stream(BRIDGES.url, 'hello there'),
  progress: () => stream(BRIDGES.runs, 'busy there'),
  auth,
});
