// @ag-ui/a2a: the agent behind CopilotKit. It always streams; it answers no questions and has no place for a token.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { A2AClient } from '@a2a-js/sdk/client';
import { A2AAgent } from '@ag-ui/a2a';

import { BRIDGES, heard, IMAGE, QUESTION, run, same, seen } from './kit.mjs';

/** A thread with the remote agent. */
class Conversation {
  constructor(url) {
    this.agent = new A2AAgent({ a2aClient: new A2AClient(url), threadId: randomUUID() });
  }

  /** What the user reads: the messages of the assistant. */
  async say(content) {
    this.agent.addMessage({ id: randomUUID(), role: 'user', content });
    const { newMessages } = await this.agent.runAgent();
    return newMessages.filter(({ role }) => role === 'assistant').map((message) => message.content).join('\n');
  }
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

/** It shows the question, and sends no answer to it. */
async function approval() {
  const asked = await new Conversation(BRIDGES.runs).say('danger');
  assert(asked.includes(QUESTION), asked);
}

async function file() {
  const image = { type: 'binary', mimeType: 'image/png', data: IMAGE, filename: 'dot.png' };
  same(await new Conversation(BRIDGES.url).say([{ type: 'text', text: 'look' }, image]), seen('look'));
}

await run('@ag-ui/a2a', {
  stream: () => stream(BRIDGES.url, 'hello there'),
  progress: () => stream(BRIDGES.runs, 'busy there'),
  turns,
  approval,
  file,
});
