"""LiteLLM's proxy as a gateway in front: clients call the proxy, and the proxy calls the bridge.

The proxy runs with the bridges registered as agents. Their cards name an address only: of a whole card the proxy would
pass on the bridge's own addresses, and lead its clients around itself. The client here is the A2A SDK's.
"""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState
from framework import CREDENTIALS, IMAGE, QUESTION, Bridges, heard, refused, run, same, seen

BRIDGES = Bridges()
KEY = 'sk-interop'
# How long the proxy takes to start, on a slow machine.
START = 120

CONFIG = """
general_settings:
  master_key: {key}
agents:
"""
AGENT = """
  - agent_name: {name}
    agent_card_params:
      name: {name}
      description: A bridge
      version: "1"
      protocolVersion: "0.3.0"
      url: {url}
      capabilities: {{ streaming: true }}
      defaultInputModes: [text/plain, image/png]
      defaultOutputModes: [text/plain]
      skills: []
    static_headers: {{ Authorization: "Bearer {token}" }}
"""


class Proxy:
    """A running proxy. It is killed when the operations are over."""

    def __init__(self):
        folder = Path(tempfile.mkdtemp())
        bridges = {'chat': BRIDGES.url, 'runs': BRIDGES.runs, 'auth': BRIDGES.auth}
        agents = [AGENT.format(name=name, url=url, token=CREDENTIALS) for name, url in bridges.items()]
        agents.append(AGENT.format(name='stranger', url=BRIDGES.auth, token='wrong'))
        config = folder / 'config.yaml'
        config.write_text(CONFIG.format(key=KEY) + ''.join(agents))
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        program = Path(sys.executable).with_name('litellm')
        command = [program, '--config', config, '--host', '127.0.0.1', '--port', str(port), '--telemetry', 'False']
        # Offline it takes the prices of models from its own file.
        environment = os.environ | {'LITELLM_LOCAL_MODEL_COST_MAP': 'True'}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=2)
        self.url = f'http://127.0.0.1:{port}'

    async def ready(self):
        async with asyncio.timeout(START), httpx.AsyncClient() as http:
            while True:
                assert self.process.poll() is None, 'the proxy ended; it said why on standard error'
                try:
                    (await http.get(f'{self.url}/health/liveliness')).raise_for_status()
                    return
                except httpx.HTTPError:
                    await asyncio.sleep(0.2)


class Conversation:
    """A context of an agent behind the proxy."""

    def __init__(self, proxy, agent='chat', streaming=True, key=KEY):
        self.url, self.streaming = f'{proxy.url}/a2a/{agent}', streaming
        self.http = httpx.AsyncClient(timeout=30, headers={'Authorization': f'Bearer {key}'})
        self.client, self.context, self.task = None, '', ''

    async def say(self, *parts):
        if not self.client:
            card = await A2ACardResolver(self.http, self.url).get_agent_card()
            config = ClientConfig(streaming=self.streaming, httpx_client=self.http)
            self.client = ClientFactory(config).create(card)
        message = Message(
            message_id=str(uuid4()), role=Role.ROLE_USER, context_id=self.context, task_id=self.task,
            parts=[Part(text=part) if isinstance(part, str) else part for part in parts],
        )
        texts, self.task = {}, ''
        async for event in self.client.send_message(SendMessageRequest(message=message)):
            kind = event.WhichOneof('payload')
            payload = getattr(event, kind)
            self.context = payload.context_id
            match kind:
                case 'message':
                    texts['message'] = written(payload.parts)
                case 'task':
                    texts |= {artifact.artifact_id: written(artifact.parts) for artifact in payload.artifacts}
                case 'artifact_update':
                    artifact = payload.artifact
                    before = texts.get(artifact.artifact_id, '') if payload.append else ''
                    texts[artifact.artifact_id] = before + written(artifact.parts)
            if kind in ('task', 'status_update') and payload.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                self.task = payload.id if kind == 'task' else payload.task_id
                return written(payload.status.message.parts)
        return '\n'.join(texts.values())


def written(parts):
    return ''.join(part.text for part in parts)


async def main():
    proxy = Proxy()
    try:
        await proxy.ready()
        await run(f'litellm {version("litellm")}', operations(proxy), proxy.process.kill)
    finally:
        proxy.process.kill()


def operations(proxy):
    async def send():
        same(await Conversation(proxy, streaming=False).say('hello there'), heard('hello there'), 'answer')

    async def stream(agent='chat', said='hello there'):
        same(await Conversation(proxy, agent).say(said), heard(said), 'answer')

    async def turns():
        for streaming in (False, True):
            conversation = Conversation(proxy, streaming=streaming)
            await conversation.say('one')
            await conversation.say('two')
            same(await conversation.say('three'), heard('three', 'one', 'two'), f'third answer, {streaming=}')

    async def approval():
        for streaming in (False, True):
            conversation = Conversation(proxy, 'runs', streaming)
            asked = await conversation.say('danger')
            assert QUESTION in asked, f'{asked!r}, {streaming=}'
            allowed = await conversation.say('yes')
            same(allowed, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
            same(await conversation.say('after'), heard('after', 'danger'), f'third answer, {streaming=}')

    async def file():
        image = Part(raw=IMAGE, media_type='image/png', filename='dot.png')
        same(await Conversation(proxy).say('look', image), seen('look'), 'answer')

    async def auth():
        await refused(Conversation(proxy, key='sk-wrong').say('hello'))
        await refused(Conversation(proxy, 'stranger').say('hello'))
        same(await Conversation(proxy, 'auth').say('hello'), heard('hello'), 'answer')

    return {
        'send': send,
        'stream': stream,
        'progress': lambda: stream('runs', 'busy there'),
        'turns': turns,
        'approval': approval,
        'file': file,
        'auth': auth,
    }


if __name__ == '__main__':
    asyncio.run(main())
