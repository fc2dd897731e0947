// Calls every function of the contract once, and answers with what it saw.

import { expect, expectIn } from 'talaria:executor/callback@0.1.0';
import { get as setting, hasSecret } from 'talaria:executor/config@0.1.0';
import { cancelled, remainingMs, session, sleep } from 'talaria:executor/control@0.1.0';
import { ask, emit, pose, scrub } from 'talaria:executor/events@0.1.0';
import { fetch as httpFetch, open } from 'talaria:executor/http@0.1.0';
import { write } from 'talaria:executor/log@0.1.0';
import { Span } from 'talaria:executor/span@0.1.0';
import { checkpoint, get, history, set } from 'talaria:executor/state@0.1.0';
import { call as callTool, list as listTools } from 'talaria:executor/tools@0.1.0';

const SCHEMA = {
  type: 'object',
  additionalProperties: false,
  properties: { url: { type: 'string' }, greeting: { type: 'string', default: 'hello' } },
  required: ['url'],
};

const text = (bytes) => new TextDecoder().decode(bytes);
const textOf = (message) => message.parts.map((part) => part.content.val).join(' ');
const textPart = (val) => ({ content: { tag: 'text', val } });
const request = (url, headers = [], timeoutMs, maxBytes) => ({
  method: 'GET', url, headers, body: new Uint8Array(), timeoutMs, maxBytes,
});
const failure = (kind, message, retryable, details) => ({ kind, message, retryable, details });

/** The kind of the error that a call ends with. */
function kind(call) {
  try {
    call();
    return 'no error';
  } catch (error) {
    return (error.payload ?? error).kind;
  }
}

export const strategy = {
  describe() {
    return {
      name: 'witness-js',
      displayName: 'Witness',
      description: 'Calls every function of the contract once',
      version: '0.1.0',
      settingsSchema: JSON.stringify(SCHEMA),
      capabilities: {
        heartbeat: false,
        scheduler: false,
        session: false,
        statusMgmt: false,
        retry: false,
        activityDecoration: false,
        channelDispatch: false,
      },
      idleTimeoutSeconds: 30,
      streaming: true,
      needs: { egress: ['GET {setting:url}/*'], secrets: ['WITNESS_KEY'], callbacks: true },
      metadata: '{"talaria/input-modes":["text/*"]}',
    };
  },

  setup(context) {
    if (!('url' in JSON.parse(context.settings))) {
      throw failure('invalid-settings', 'url is missing', false, undefined);
    }
  },

  execute(turn) {
    if (turn.text === 'fail') throw failure('upstream', 'asked to fail', true, '{"why":"asked"}');
    if (turn.text === 'stream') {
      emit({ tag: 'text-delta', val: 'one ' });
      emit({ tag: 'text-delta', val: 'two' });
      return { state: 'completed', parts: [] };
    }
    const seen = {
      http: calls(JSON.parse(turn.settings).url),
      callback: callbacks(),
      events: happenings(),
      state: remembered(),
      control: [remainingMs() > 0, cancelled(), sleep(1), session('chat-id') ?? null],
      config: [setting('greeting'), hasSecret('WITNESS_KEY')],
      tools: [listTools().map((tool) => tool.name), callTool('echo', '{"text":"hi"}')],
    };
    write('info', 'witnessed', '{"functions":"all"}');
    const opened = new Span('witness.look', [['language', 'js']]);
    opened.set('seen', 'all');
    opened.event('done');
    opened[Symbol.dispose]();
    const parts = [{ content: { tag: 'data', val: JSON.stringify(seen) } }];
    return { state: 'completed', parts, usage: { inputTokens: 1, outputTokens: 2 }, metadata: '{"witness":true}' };
  },

  cancel(turn, checkpoint) {
    write('warn', `cancelled after ${checkpoint?.length ?? 0} bytes`, undefined);
  },
};

function calls(url) {
  const response = httpFetch(request(`${url}/fetch`, [['x-witness', '{secret:WITNESS_KEY}']], 5000, 1000));
  const events = open(request(`${url}/events`));
  const typed = events.headers().some(([name]) => name === 'content-type');
  const opened = [events.status(), typed, events.awaitEvent(5000), events.nextEvent().data];
  events[Symbol.dispose]();
  const bytes = open(request(`${url}/raw`));
  const raw = text(bytes.read(100));
  bytes[Symbol.dispose]();
  const denied = kind(() => httpFetch(request('http://127.0.0.1:9/denied')));
  return [response.status, text(response.body), ...opened, raw, denied];
}

function callbacks() {
  const pending = expect('message-1');
  const found = [pending.replyUrl().startsWith('http'), pending.overtakes(), kind(() => pending.wait(1))];
  pending[Symbol.dispose]();
  const inChat = expectIn('chat', 'message-2', 1000);
  found.push(inChat.replyUrl().startsWith('http'));
  inChat[Symbol.dispose]();
  return found;
}

function happenings() {
  const parts = [textPart('a piece')];
  emit({ tag: 'status', val: 'working' });
  emit({ tag: 'artifact', val: { id: 'a1', name: 'name', parts, append: false, last: true } });
  emit({ tag: 'tool-progress', val: { id: 't1', name: 'tool', state: 'started' } });
  emit({ tag: 'custom', val: { name: 'witness', value: '{"n":1}' } });
  const asked = textOf(ask([textPart('first?')]));
  const question = pose([textPart('second?')]);
  let answer;
  while (answer === undefined) answer = question.wait(1000);
  question[Symbol.dispose]();
  return [scrub('plain'), asked, textOf(answer)];
}

function remembered() {
  const before = get('count');
  set('count', new TextEncoder().encode('1'));
  const after = get('count');
  set('count', undefined);
  checkpoint(new TextEncoder().encode('half'));
  return [before === undefined, text(after), get('count') === undefined, history(5).length >= 0];
}
