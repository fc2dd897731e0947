// a2a-ai-provider: a remote agent as a model of Vercel's AI SDK. It has no place for a token, and takes a question of the
// agent's for an answer.

import { randomUUID } from 'node:crypto';

import { a2a } from 'a2a-ai-provider';
import { generateText, streamText } from 'ai';

import { BRIDGES, card, collect, heard, IMAGE, run, same, seen } from './kit.mjs';

async function send(url, prompt, contextId) {
  const providerOptions = contextId ? { a2a: { contextId } } : {};
  return (await generateText({ model: a2a(card(url)), prompt, providerOptions })).text;
}

async function streamed(url, prompt, contextId) {
  const providerOptions = contextId ? { a2a: { contextId } } : {};
  const result = streamText({ model: a2a(card(url)), prompt, providerOptions });
  return (await collect(result.textStream)).join('');
}

async function turns() {
  for (const say of [send, streamed]) {
    const contextId = randomUUID();
    await say(BRIDGES.url, 'one', contextId);
    await say(BRIDGES.url, 'two', contextId);
    same(await say(BRIDGES.url, 'three', contextId), heard('three', 'one', 'two'));
  }
}

async function file() {
  const image = { type: 'file', data: Buffer.from(IMAGE, 'base64'), mediaType: 'image/png' };
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'look' }, image] }];
  same((await generateText({ model: a2a(card(BRIDGES.url)), messages })).text, seen('look'));
}

await run('a2a-ai-provider', {
  send: async () => same(await send(BRIDGES.url, 'hello there'), heard('hello there')),
  stream: async () => same(await streamed(BRIDGES.url, 'hello there'), heard('hello there')),
  progress: async () => same(await streamed(BRIDGES.runs, 'busy there'), heard('busy there')),
  turns,
  file,
});
