"""The tests of clients: an agent that answers with a canned payload, and what the product's client made of it."""

import asyncio
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from check import check


class Agent:
    """An agent on loopback. It answers every call with `payload`, under the id of the call."""

    def __init__(self):
        self.payload = {}
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                interface = {'url': agent.url, 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0'}
                self.answer({'name': 'canned', 'capabilities': {}, 'supportedInterfaces': [interface]})

            def do_POST(self):
                call = json.loads(self.rfile.read(int(self.headers['content-length'])))
                self.answer({**agent.payload, 'id': call['id']})

            def answer(self, body):
                body = json.dumps(body).encode()
                self.send_response(200)
                self.send_header('content-type', 'application/json')
                self.send_header('content-length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        Thread(target=self.server.serve_forever, daemon=True).start()


async def run(tests, program, report):
    """`program OPERATION URL` prints what the client made of the answer, as JSON."""
    agent = Agent()
    for test in tests:
        if 'client_response' in test['steps'][0]:
            wrong = [await parse(program, agent, step) for step in test['steps']]
            wrong = next(filter(None, wrong), None)
            report(test, 'failed' if wrong else 'passed', wrong or '')


async def parse(program, agent, step):
    """What is wrong with what the client read."""
    agent.payload = step['client_response']['wire_payload']
    client = await asyncio.create_subprocess_exec(
        program,
        step['client_response']['operation'],
        agent.url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = await client.communicate()
    if client.returncode:
        return f'{step["id"]}: the client ended with {client.returncode}: {said.decode()}'
    wrong = check(step['expect_parsed'], json.loads(out))
    return wrong and f'{step["id"]}: {wrong}'
