"""Memory with an upstream that keeps none: LiteLLM's proxy behind talaria, `litellm_memory.py TALARIA`.

LiteLLM's own mock answers with a fixed text, which cannot show what it was told. So the proxy has a model behind it that is
scripted here: it knows a name only if one of the messages that it is given says so. Talaria keeps its tasks in a file, is
killed and started again in the middle, and is spoken to in both versions of the protocol.

Ends with 0 if every check held; else says on standard error which did not.
"""

import faulthandler
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Everything together; the proxy alone takes some ten seconds to start, and minutes on a busy machine.
TOTAL = 420
START = 300
KEY = 'sk-of-the-memory-test-4417'


class Model(BaseHTTPRequestHandler):
    """An OpenAI-shaped model that knows what it is told and nothing else."""

    protocol_version = 'HTTP/1.1'
    seen: list[list[dict]] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        Model.seen.append(body['messages'])
        text = answer(body['messages'])
        if body.get('stream'):
            self.stream(body['model'], text)
            return
        choice = {'index': 0, 'message': {'role': 'assistant', 'content': text}, 'finish_reason': 'stop'}
        usage = {'prompt_tokens': 1, 'completion_tokens': 1, 'total_tokens': 2}
        self.reply('application/json', json.dumps(envelope('chat.completion', body['model'], choice) | {'usage': usage}))

    def stream(self, model, text):
        pieces = [{'role': 'assistant', 'content': word + ' '} for word in text.split()] or [{'content': ''}]
        choices = [{'index': 0, 'delta': piece, 'finish_reason': None} for piece in pieces]
        choices.append({'index': 0, 'delta': {}, 'finish_reason': 'stop'})
        events = [json.dumps(envelope('chat.completion.chunk', model, choice)) for choice in choices] + ['[DONE]']
        self.reply('text/event-stream', ''.join(f'data: {event}\n\n' for event in events))

    def reply(self, kind, text):
        self.send_response(200)
        self.send_header('content-type', kind)
        self.send_header('content-length', str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def envelope(kind, model, choice):
    return {'id': 'c1', 'object': kind, 'created': 1, 'model': model, 'choices': [choice]}


def answer(messages):
    """What the model says to these messages."""
    said = [message['content'] for message in messages if message['role'] == 'user']
    names = [name for text in said for name in re.findall(r'my name is (\w+)', text)]
    if 'what is my name' not in said[-1]:
        return 'Noted.'
    return f'Your name is {names[-1]}.' if names else 'I do not know your name.'


class Talaria:
    """A running `talaria serve` on a folder, killed when it is stopped."""

    def __init__(self, binary, folder):
        self.log = open(folder / 'talaria.log', 'ab')
        command = [binary, 'serve', '--listen', '127.0.0.1:0', '--output', 'json']
        env = {'API_SERVER_KEY': KEY, 'XDG_CACHE_HOME': os.environ.get('XDG_CACHE_HOME', str(folder / 'cache'))}
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=self.log)
        text = ''
        for line in self.process.stdout:
            text += line.decode()
            try:
                self.url = json.loads(text)['url']
                return
            except (json.JSONDecodeError, KeyError):
                continue
        raise AssertionError(f'talaria did not start: {text}{(folder / "talaria.log").read_text()}')

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def say(self, text, version, context=None):
        """Sends a text; the answer's text, and the context that it belongs to."""
        message = {'messageId': str(uuid.uuid4())} | ({'contextId': context} if context else {})
        if version == '1.0':
            message |= {'role': 'ROLE_USER', 'parts': [{'text': text}]}
            method, headers = 'SendMessage', {'a2a-version': '1.0'}
        else:
            message |= {'kind': 'message', 'role': 'user', 'parts': [{'kind': 'text', 'text': text}]}
            method, headers = 'message/send', {}
        call = {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': {'message': message}}
        answered = post(self.url, call, headers)
        assert 'result' in answered, answered
        said = answered['result'].get('message') or answered['result'].get('task') or answered['result']
        if 'status' in said:
            parts = [part for artifact in said.get('artifacts', []) for part in artifact['parts']]
            parts = parts or (said['status'].get('message') or {}).get('parts', [])
        else:
            parts = said['parts']
        return ' '.join(part.get('text', '') for part in parts), said['contextId']


def post(url, body, headers):
    headers = {'content-type': 'application/json'} | headers
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def start_proxy(folder, model):
    """LiteLLM's proxy in front of the model; its process and its address."""
    config = folder / 'litellm.yaml'
    config.write_text(json.dumps({
        'model_list': [{
            'model_name': 'scripted',
            'litellm_params': {'model': 'openai/scripted', 'api_base': f'{model}/v1', 'api_key': 'sk-none'},
        }],
        'general_settings': {'master_key': KEY},
    }))
    port = free_port()
    log = open(folder / 'litellm.log', 'wb')
    program = Path(sys.executable).with_name('litellm')
    command = [program, '--config', config, '--host', '127.0.0.1', '--port', str(port)]
    env = os.environ | {'LITELLM_LOCAL_MODEL_COST_MAP': 'True', 'LITELLM_TELEMETRY': 'False', 'NO_PROXY': '*'}
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{port}/health/liveliness', timeout=5):
                return process, f'http://127.0.0.1:{port}/v1'
        except OSError:
            time.sleep(0.2)
    process.kill()
    raise AssertionError(f'LiteLLM did not start:\n{(folder / "litellm.log").read_text()[-4000:]}')


def same(found, expected, what):
    print(f'{what}: {found}')
    assert found == expected, f'{what}: {found!r} is not {expected!r}'


def main(binary):
    faulthandler.dump_traceback_later(TOTAL, exit=True)
    server = ThreadingHTTPServer(('127.0.0.1', 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        proxy, base_url = start_proxy(folder, f'http://127.0.0.1:{server.server_port}')
        try:
            (folder / 'talaria.toml').write_text(
                '[store]\nurl = "sqlite:talaria.db"\n[executor.chat-completions.settings]\n'
                f'base_url = "{base_url}"\nmodel = "scripted"\n'
            )
            talk(binary, folder)
        finally:
            proxy.kill()
            proxy.wait()


def talk(binary, folder):
    known, unknown = 'Your name is Ada.', 'I do not know your name.'
    talaria = Talaria(binary, folder)
    try:
        said, context = talaria.say('my name is Ada', '1.0')
        same(said, 'Noted.', 'the first send')
        same(talaria.say('what is my name?', '1.0', context)[0], known, 'the second send')
        same(talaria.say('what is my name?', '0.3', context)[0], known, 'the same over 0.3')
        _, other = talaria.say('my name is Grace', '0.3')
        same(talaria.say('what is my name?', '1.0', other)[0], 'Your name is Grace.', 'begun over 0.3')
        same(talaria.say('what is my name?', '1.0')[0], unknown, 'another conversation')
    finally:
        talaria.kill()
    talaria = Talaria(binary, folder)
    try:
        for version in ['1.0', '0.3']:
            same(talaria.say('what is my name?', version, context)[0], known, f'after a restart, over {version}')
    finally:
        talaria.kill()
    roles = [message['role'] for message in Model.seen[-1]]
    same(roles, ['user', 'assistant'] * (len(roles) // 2) + ['user'], 'both sides take turns')


if __name__ == '__main__':
    main(sys.argv[1])
