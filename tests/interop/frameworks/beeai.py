"""BeeAI: `A2AAgent`. Its own messages are text; a message of the A2A SDK carries a file."""

import asyncio
import base64
from importlib.metadata import version
from uuid import uuid4

from a2a import types
from beeai_framework.adapters.a2a.agents.agent import A2AAgent, A2AAgentParameters, HttpxAsyncClientParameters
from beeai_framework.memory import UnconstrainedMemory
from framework import CREDENTIALS, IMAGE, QUESTION, Bridges, heard, refused, run, same, seen

BRIDGES = Bridges()


def agent(url, **headers):
    parameters = A2AAgentParameters(httpx_async_client=HttpxAsyncClientParameters(headers=headers))
    return A2AAgent(url=url, memory=UnconstrainedMemory(), parameters=parameters)


async def say(remote, message, streaming=True):
    output = await remote.run(message, streaming=streaming)
    return output.last_message.text


async def send():
    same(await say(agent(BRIDGES.url), 'hello there', streaming=False), heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    same(await say(agent(url), said), heard(said), 'answer')


async def turns():
    for streaming in (False, True):
        remote = agent(BRIDGES.url)
        await say(remote, 'one', streaming)
        await say(remote, 'two', streaming)
        same(await say(remote, 'three', streaming), heard('three', 'one', 'two'), f'third answer, {streaming=}')


async def approval():
    for streaming in (False, True):
        remote = agent(BRIDGES.runs)
        asked = await say(remote, 'danger', streaming)
        assert QUESTION in asked, f'{asked!r}, {streaming=}'
        allowed = await say(remote, 'yes', streaming)
        same(allowed, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
        same(await say(remote, 'after', streaming), heard('after', 'danger'), f'third answer, {streaming=}')


async def file():
    image = types.FileWithBytes(bytes=base64.b64encode(IMAGE).decode(), mime_type='image/png', name='dot.png')
    parts = [types.TextPart(text='look'), types.FilePart(file=image)]
    message = types.Message(role='user', message_id=str(uuid4()), parts=[types.Part(root=part) for part in parts])
    same(await say(agent(BRIDGES.url), message), seen('look'), 'answer')


async def auth():
    await refused(say(agent(BRIDGES.auth), 'hello'))
    remote = agent(BRIDGES.auth, Authorization=f'Bearer {CREDENTIALS}')
    same(await say(remote, 'hello'), heard('hello'), 'answer')


if __name__ == '__main__':
    operations = {
        'send': send,
        'stream': stream,
        'progress': lambda: stream(BRIDGES.runs, 'busy there'),
        'turns': turns,
        'approval': approval,
        'file': file,
        'auth': auth,
    }
    asyncio.run(run(f'beeai-framework {version("beeai-framework")}', operations))
