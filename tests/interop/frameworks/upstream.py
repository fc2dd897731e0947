"""A scripted agent with the API of hermes-agent, so that a framework can be asked for an exact text.

It answers `X` with `heard: X | prior=[...]`, where `prior` lists the user's earlier messages of the conversation. Images
add ` | images=[...]` with their media types. Every answer takes a tool call and comes in pieces that are torn inside
words. On runs, three more things happen, as hermes-agent does them:

- a text that begins with `busy` is turned away once with 429, which the bridge tells its caller as a status line;
- one that begins with `danger` waits for an approval, and the answer says which: ` | approval=once`;
- the pieces end with a line feed that the final text does not have.

It prints its port as the first line. It keeps conversations in memory and ends with its standard input.
"""

import itertools
import json
import queue
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Short enough to tear every word, long enough for a few pieces an answer.
PIECE = 7
# How long an approval is waited for. No driver takes seconds.
APPROVAL = 30
FEATURES = ('run_submission', 'run_status', 'run_events_sse', 'run_stop', 'run_approval_response', 'approval_events')
CHOICES = ('once', 'session', 'always', 'deny')

# The messages of each conversation, and every run, by their ids.
sessions = {}
runs = {}
turned_away = set()


def pieces(text):
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def heard(content):
    """The text of a message, and the media types of its images."""
    if isinstance(content, str):
        return content, []
    texts = [part['text'] for part in content if part.get('type') == 'text']
    images = [part['image_url'] for part in content if part.get('type') == 'image_url']
    urls = [image['url'] if isinstance(image, dict) else image for image in images]
    return '\n'.join(texts), [url.removeprefix('data:').split(';')[0] for url in urls]


def answer(content, earlier, approval=None):
    """What is said to a message after those others."""
    text, images = heard(content)
    prior = [heard(message['content'])[0] for message in earlier if message['role'] == 'user']
    said = f'heard: {text} | prior={prior}'
    if images:
        said += f' | images={images}'
    return said + (f' | approval={approval}' if approval else '')


def keep(session, content, said):
    turn = [{'role': 'user', 'content': content}, {'role': 'assistant', 'content': said}]
    sessions.setdefault(session, []).extend(turn)


class Run:
    """One turn on the route with events."""

    def __init__(self, body):
        self.id = f'run_{uuid.uuid4().hex}'
        self.body, self.session = body, body.get('session_id') or str(uuid.uuid4())
        self.events, self.choices, self.clock = queue.Queue(), queue.Queue(), itertools.count(1)
        self.state = {'object': 'hermes.run', 'run_id': self.id, 'session_id': self.session}
        self.note('running', 'run.started')
        threading.Thread(target=self.work, daemon=True).start()

    def note(self, status, event, **more):
        self.state.update(status=status, last_event=event, updated_at=next(self.clock), **more)

    def emit(self, event, **more):
        self.events.put({'event': event, 'run_id': self.id, **more})

    def work(self):
        content = self.body['input']
        content = content if isinstance(content, str) else content[-1]['content']
        self.emit('tool.started', tool='terminal', preview='echo hi')
        approval = self.approval() if heard(content)[0].startswith('danger') else None
        self.emit('tool.completed', tool='terminal', duration=0.01, error=False)
        said = answer(content, self.body.get('conversation_history') or [], approval)
        for piece in pieces(said + '\n'):
            self.emit('message.delta', delta=piece)
        keep(self.session, content, said)
        self.note('completed', 'run.completed', output=said)
        self.emit('run.completed', output=said)

    def approval(self):
        request = {'command': 'rm -rf /tmp/scratch', 'description': 'delete a folder', 'choices': CHOICES}
        self.note('waiting_for_approval', 'approval.request')
        self.emit('approval.request', **request)
        try:
            choice = self.choices.get(timeout=APPROVAL)
        except queue.Empty:
            choice = 'timeout'
        self.note('running', 'approval.responded')
        return choice


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        match self.path.strip('/').split('/'):
            case ['health'] | ['v1', 'health']:
                self.reply({'status': 'ok', 'platform': 'hermes-agent', 'version': '0.19.0'})
            case ['v1', 'models']:
                self.reply({'object': 'list', 'data': [{'id': 'hermes-agent', 'object': 'model'}]})
            case ['v1', 'capabilities']:
                self.reply({'features': dict.fromkeys(FEATURES, True)})
            case ['v1', 'runs', id] if id in runs:
                self.reply(runs[id].state)
            case ['v1', 'runs', id, 'events'] if id in runs:
                events = iter(runs[id].events.get, None)
                self.stream(until(events, lambda event: event['event'] == 'run.completed'))
            case ['api', 'sessions', id, 'messages'] if id in sessions:
                self.reply({'object': 'list', 'session_id': id, 'data': sessions[id]})
            case _:
                self.reply({'error': {'message': 'not found'}}, 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get('content-length', 0))) or '{}')
        match self.path.strip('/').split('/'):
            case ['v1', 'chat', 'completions']:
                self.chat(body)
            case ['v1', 'runs']:
                self.start(body)
            case ['v1', 'runs', id, 'approval'] if id in runs:
                runs[id].choices.put(body['choice'])
                self.reply({'run_id': id, 'choice': body['choice'], 'resolved': 1})
            case ['v1', 'runs', id, 'stop'] if id in runs:
                self.reply({'run_id': id, 'status': 'stopping'})
            case _:
                self.reply({'error': {'message': 'not found'}}, 404)

    def start(self, body):
        asked = json.dumps(body)
        if body['input'][:4] == 'busy' and asked not in turned_away:
            turned_away.add(asked)
            return self.reply({'error': {'message': 'busy'}}, 429, ('retry-after', '1'))
        run = Run(body)
        runs[run.id] = run
        return self.reply({'run_id': run.id, 'status': 'started'}, 202)

    def chat(self, body):
        *earlier, last = [message for message in body['messages'] if message['role'] != 'system']
        # A session is read back by the agent; without one the caller has to send what was said.
        session = self.headers.get('x-hermes-session-id')
        said = answer(last['content'], sessions.get(session, []) if session else earlier)
        if session:
            keep(session, last['content'], said)
        if not body.get('stream'):
            choice = {'index': 0, 'message': {'role': 'assistant', 'content': said}, 'finish_reason': 'stop'}
            return self.reply({'id': 'chat', 'object': 'chat.completion', 'choices': [choice]})
        return self.stream(chunks(said), done=True)

    def reply(self, value, status=200, *headers):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (('content-type', 'application/json'), ('content-length', str(len(body))), *headers):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events, done=False):
        self.send_response(200)
        self.send_header('content-type', 'text/event-stream')
        self.send_header('connection', 'close')
        self.end_headers()
        for event in events:
            name = event.pop('sse', None)
            self.wfile.write(f'{f"event: {name}" if name else ":"}\ndata: {json.dumps(event)}\n\n'.encode())
            self.wfile.flush()
        if done:
            self.wfile.write(b'data: [DONE]\n\n')

    def log_message(self, *_):
        pass


def chunks(said):
    """An answer as the chunks of a chat completion, with a tool call before it."""

    def chunk(delta, reason=None):
        choice = {'index': 0, 'delta': delta, 'finish_reason': reason}
        return {'id': 'chat', 'object': 'chat.completion.chunk', 'choices': [choice]}

    for status in ('running', 'completed'):
        yield {'sse': 'hermes.tool.progress', 'tool': 'terminal', 'label': 'echo hi', 'toolCallId': '1', 'status': status}
    for piece in pieces(said):
        yield chunk({'content': piece})
    yield chunk({}, 'stop')


def until(events, last):
    for event in events:
        yield event
        if last(event):
            return


if __name__ == '__main__':
    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The end of this process's parent is the end of its input.
    sys.stdin.read()
