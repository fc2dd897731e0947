// {{name}}: sends each turn to an OpenAI-compatible API and returns the answer.
//
// Calls block, and the host runs other turns meanwhile. Each turn has its own instance.

import { fetch as httpFetch, open } from 'talaria:executor/http@0.1.0';
import { emit } from 'talaria:executor/events@0.1.0';
import { hasSecret } from 'talaria:executor/config@0.1.0';

// The host fills it in; this code never sees it.
const KEY = 'UPSTREAM_KEY';

const SCHEMA = {
  type: 'object',
  additionalProperties: false,
  properties: {
    base_url: { type: 'string', default: 'https://api.example.com/v1' },
    model: { type: 'string', default: 'a-model' },
  },
};

export const strategy = {
  // Declares the name, the settings and the needs. The operator decides what is granted.
  describe() {
    return {
      name: '{{name}}',
      displayName: '{{name}}',
      description: 'Sends a turn to an OpenAI-shaped API',
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
      streaming: true,
      needs: {
        egress: ['POST {setting:base_url}/chat/completions', 'GET {setting:base_url}/models'],
        secrets: [KEY],
        callbacks: false,
      },
    };
  },

  // Checks that the upstream can be reached, before the first turn and periodically.
  setup(context) {
    const call = request(JSON.parse(context.settings), 'GET', '/models', '', 5000);
    const response = called(() => httpFetch(call));
    if (response.status !== 200) throw upstream(`it answers ${response.status}`);
  },

  execute(turn) {
    const settings = JSON.parse(turn.settings);
    const body = JSON.stringify({
      model: settings.model,
      messages: [{ role: 'user', content: turn.text }],
      stream: turn.streaming,
    });
    const call = request(settings, 'POST', '/chat/completions', body);
    if (turn.streaming) return stream(call);
    const response = called(() => httpFetch(call));
    if (response.status !== 200) throw upstream(`it answers ${response.status}`);
    const text = json(new TextDecoder().decode(response.body)).choices?.[0]?.message?.content;
    if (typeof text !== 'string') throw upstream('its answer has no text');
    return { state: 'completed', parts: [{ content: { tag: 'text', val: text } }] };
  },

  // The connection is closed already. Stop work that the upstream still does for this turn.
  cancel() {},
};

function request(settings, method, path, body, timeoutMs) {
  const headers = body ? [['content-type', 'application/json']] : [];
  if (hasSecret(KEY)) headers.push(['authorization', `Bearer {secret:${KEY}}`]);
  const url = settings.base_url.replace(/\/+$/, '') + path;
  return { method, url, headers, body: new TextEncoder().encode(body), timeoutMs };
}

// Passes the answer on as it arrives.
function stream(call) {
  const exchange = called(() => open(call));
  if (exchange.status() !== 200) throw upstream(`it answers ${exchange.status()}`);
  for (;;) {
    const event = called(() => exchange.nextEvent());
    if (event === undefined || event.data === '[DONE]') break;
    const text = json(event.data).choices?.[0]?.delta?.content;
    if (text) emit({ tag: 'text-delta', val: text });
  }
  // The emitted text is the answer.
  return { state: 'completed', parts: [] };
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw upstream('its answer is no JSON');
  }
}

// Makes a call. If there is no response, the turn fails.
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
  return { kind, message, retryable: kind === 'upstream' };
}
