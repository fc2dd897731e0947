"""Strands Agents: `A2AAgent`. It always streams, sends text only, and knows no conversation."""

import asyncio
from importlib.metadata import version

import httpx
from a2a.client import ClientConfig
from framework import CREDENTIALS, QUESTION, Bridges, heard, refused, run, same
from strands.agent.a2a_agent import A2AAgent

BRIDGES = Bridges()


async def ask(text, url=BRIDGES.url, **options):
    result = await A2AAgent(url, **options).invoke_async(text)
    return result, written(result)


def written(result):
    """Strands ends every part with a line feed."""
    return str(result).removesuffix('\n')


async def send():
    same((await ask('hello there'))[1], heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    events = [event async for event in A2AAgent(url).stream_async(said)]
    assert len(events) > 2, f'nothing was streamed: {events}'
    same(written(events[-1]['result']), heard(said), 'answer')


async def approval():
    """It shows the question, and offers no way to answer it."""
    result, text = await ask('danger', BRIDGES.runs)
    same(result.stop_reason, 'interrupt', 'stop reason')
    assert QUESTION in text, text


async def auth():
    await refused(ask('hello', BRIDGES.auth))
    http = httpx.AsyncClient(timeout=30, headers={'Authorization': f'Bearer {CREDENTIALS}'})
    _, text = await ask('hello', BRIDGES.auth, client_config=ClientConfig(httpx_client=http))
    same(text, heard('hello'), 'answer')


if __name__ == '__main__':
    operations = {
        'send': send,
        'stream': stream,
        'progress': lambda: stream(BRIDGES.runs, 'busy there'),
        'approval': approval,
        'auth': auth,
    }
    asyncio.run(run(f'strands-agents {version("strands-agents")}', operations))
