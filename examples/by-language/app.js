// Routes a message to one of two upstreams by its language.
//
// English goes to `english_url`, everything else to `other_url`, each with a model of its own. The language is guessed from the
// script and from frequent words; without a sign of English it counts as another one.

import { fetch as httpFetch, open } from 'talaria:executor/http@0.1.0';
import { emit } from 'talaria:executor/events@0.1.0';
import { hasSecret } from 'talaria:executor/config@0.1.0';
import { write } from 'talaria:executor/log@0.1.0';

const KEYS = { english: 'ENGLISH_KEY', other: 'OTHER_KEY' };

const setting = (description, value) => ({ type: 'string', description, default: value });
const SCHEMA = {
  type: 'object',
  additionalProperties: false,
  properties: {
    english_url: setting('Where English goes', 'http://127.0.0.1:8642/v1'),
    english_model: setting('The model for it', 'hermes-agent'),
    other_url: setting('Where other languages go', 'http://127.0.0.1:8643/v1'),
    other_model: setting('The model for them', 'hermes-agent'),
  },
};

// Words that are frequent in one of the languages and rare in the others.
const ENGLISH = new Set('the and of to is in that it you for on with are this what how do i my please'.split(' '));
const OTHERS = new Set(
  ('der die und ist nicht das ein eine ich wie was bitte les est et une je vous dans pour que el los por una como ' +
    'il di che non per sono och det är som en på het een van ik nie jest się to').split(' '),
);

// The engine has no Unicode tables, so `\p{…}` is not supported and letters are given as ranges.
const WORDS = /[A-Za-z\u00c0-\u024f]+/g;
const BEYOND_LATIN = /[\u0370-\u1fff\u3040-\ud7ff]/g;
const ACCENTED = /[\u00c0-\u024f]/;

/** `english` or `other`. */
export function languageOf(text) {
  const words = text.toLowerCase().match(WORDS) ?? [];
  const beyond = (text.match(BEYOND_LATIN) ?? []).length;
  if (beyond > words.join('').length) return 'other';
  let english = 0;
  let others = 0;
  for (const word of words) {
    if (ENGLISH.has(word)) english += 1;
    if (OTHERS.has(word) || ACCENTED.test(word)) others += 1;
  }
  return english > 0 && english >= others ? 'english' : 'other';
}

export const strategy = {
  describe() {
    const bases = ['english_url', 'other_url'];
    return {
      name: 'by-language',
      displayName: 'By language',
      description: 'Sends a message to one of two upstreams, by its language',
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
      idleTimeoutSeconds: undefined,
      streaming: true,
      needs: {
        egress: bases.flatMap((base) => [
          `POST {setting:${base}}/chat/completions`,
          `GET {setting:${base}}/health`,
        ]),
        secrets: Object.values(KEYS),
        callbacks: false,
      },
      metadata: undefined,
    };
  },

  setup(context) {
    const settings = JSON.parse(context.settings);
    for (const base of [settings.english_url, settings.other_url]) {
      const response = called(() => httpFetch(request('GET', `${trimmed(base)}/health`, [], '', 5000)));
      if (response.status >= 500) throw upstream(`${base} answers ${response.status}`);
    }
  },

  execute(turn) {
    const settings = JSON.parse(turn.settings);
    const language = languageOf(turn.text);
    write('info', `the message is ${language}`, undefined);
    const headers = [['content-type', 'application/json']];
    if (hasSecret(KEYS[language])) headers.push(['authorization', `Bearer {secret:${KEYS[language]}}`]);
    const body = JSON.stringify({
      model: settings[`${language}_model`],
      messages: [{ role: 'user', content: turn.text }],
      stream: turn.streaming,
    });
    const url = `${trimmed(settings[`${language}_url`])}/chat/completions`;
    const call = request('POST', url, headers, body);
    return turn.streaming ? streamed(call, language) : buffered(call, language);
  },

  cancel() {
    // The connection is closed already, which stops the gateway.
  },
};

function buffered(call, language) {
  const response = called(() => httpFetch(call));
  if (response.status !== 200) throw upstream(`the gateway answers ${response.status}`);
  const answer = parsed(new TextDecoder().decode(response.body));
  const text = answer.choices?.[0]?.message?.content;
  if (typeof text !== 'string') throw upstream("the gateway's answer has no text");
  return outcome([text], answer.usage, language);
}

function streamed(call, language) {
  const exchange = called(() => open(call));
  if (exchange.status() !== 200) throw upstream(`the gateway answers ${exchange.status()}`);
  let usage;
  for (;;) {
    const event = called(() => exchange.nextEvent());
    if (event === undefined || event.data === '[DONE]') break;
    const chunk = parsed(event.data);
    usage = chunk.usage ?? usage;
    const text = chunk.choices?.[0]?.delta?.content;
    if (text) emit({ tag: 'text-delta', val: text });
  }
  // What was emitted is the answer.
  return outcome([], usage, language);
}

function request(method, url, headers, body, timeoutMs) {
  return { method, url, headers, body: new TextEncoder().encode(body), timeoutMs, maxBytes: undefined };
}

function trimmed(base) {
  return base.replace(/\/+$/, '');
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw upstream("the gateway's answer is no JSON");
  }
}

function outcome(texts, usage, language) {
  const part = (text) => ({ content: { tag: 'text', val: text } });
  return {
    state: 'completed',
    parts: texts.map(part),
    usage: usage && { inputTokens: usage.prompt_tokens ?? 0, outputTokens: usage.completion_tokens ?? 0 },
    metadata: JSON.stringify({ language }),
  };
}

/** Makes a call; one that has no response becomes a failure of the turn. */
function called(call) {
  try {
    return call();
  } catch (error) {
    const { kind, message } = error.payload ?? { kind: 'protocol', message: String(error) };
    const kinds = { denied: 'denied', cancelled: 'cancelled', 'timed-out': 'timed-out' };
    throw failure(kinds[kind] ?? 'upstream', message);
  }
}

function upstream(message) {
  return failure('upstream', message);
}

function failure(kind, message) {
  return { kind, message, retryable: kind === 'upstream', details: undefined };
}
