"""fast-agent: `A2ARemoteAgent`, which is what an agent card of type `a2a` becomes."""

import asyncio
import base64
from importlib.metadata import version

from framework import CREDENTIALS, IMAGE, QUESTION, Bridges, heard, refused, run, same, seen
from fast_agent.a2a.config import A2AAgentConfig
from fast_agent.a2a.remote_agent import A2ARemoteAgent
from fast_agent.agents.agent_types import AgentConfig
from fast_agent.types import PromptMessageExtended
from mcp_types import ImageContent, TextContent

BRIDGES = Bridges()


async def agent(url, streaming=True, **headers):
    remote = A2ARemoteAgent(AgentConfig('remote'), A2AAgentConfig(url=url, streaming=streaming, headers=headers))
    await remote.initialize()
    return remote


async def say(remote, *contents):
    contents = [TextContent(type='text', text=c) if isinstance(c, str) else c for c in contents]
    answer = await remote.generate([PromptMessageExtended(role='user', content=contents)])
    return answer.all_text()


async def send():
    same(await say(await agent(BRIDGES.url, streaming=False), 'hello there'), heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    same(await say(await agent(url), said), heard(said), 'answer')


async def turns():
    for streaming in (False, True):
        remote = await agent(BRIDGES.url, streaming)
        await say(remote, 'one')
        await say(remote, 'two')
        same(await say(remote, 'three'), heard('three', 'one', 'two'), f'third answer, {streaming=}')


async def approval():
    for streaming in (False, True):
        remote = await agent(BRIDGES.runs, streaming)
        asked = await say(remote, 'danger')
        # Where nothing is streamed it shows the state, and not the question.
        assert (QUESTION if streaming else 'INPUT_REQUIRED') in asked, f'{asked!r}, {streaming=}'
        allowed = await say(remote, 'yes')
        same(allowed, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
        same(await say(remote, 'after'), heard('after', 'danger'), f'third answer, {streaming=}')


async def file():
    image = ImageContent(type='image', data=base64.b64encode(IMAGE).decode(), mime_type='image/png')
    same(await say(await agent(BRIDGES.url), 'look', image), seen('look'), 'answer')


async def auth():
    await refused(say(await agent(BRIDGES.auth), 'hello'))
    remote = await agent(BRIDGES.auth, Authorization=f'Bearer {CREDENTIALS}')
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
    asyncio.run(run(f'fast-agent-mcp {version("fast-agent-mcp")}', operations))
