"""AG2: an agent whose model is a remote agent, by `A2AConfig`."""

import asyncio
from importlib.metadata import version

from ag2 import Agent
from ag2.a2a import A2AConfig
from ag2.events import ImageInput
from framework import CREDENTIALS, IMAGE, QUESTION, Bridges, heard, refused, run, same, seen

BRIDGES = Bridges()


def agent(url, streaming=True, **options):
    return Agent('remote', config=A2AConfig(card_url=url, streaming=streaming, **options))


async def send():
    reply = await agent(BRIDGES.url, streaming=False).ask('hello there')
    same(reply.body, heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    same((await agent(url).ask(said)).body, heard(said), 'answer')


async def turns():
    for streaming in (False, True):
        reply = await agent(BRIDGES.url, streaming).ask('one')
        reply = await reply.ask('two')
        reply = await reply.ask('three')
        same(reply.body, heard('three', 'one', 'two'), f'third answer, {streaming=}')


async def approval():
    questions = []

    def allow(request):
        questions.append(request.content)
        return 'yes'

    for streaming in (False, True):
        reply = await agent(BRIDGES.runs, streaming).ask('danger', hitl_hook=allow)
        same(reply.body, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
        assert QUESTION in questions[-1], questions
        reply = await reply.ask('after')
        same(reply.body, heard('after', 'danger'), f'third answer, {streaming=}')


async def file():
    reply = await agent(BRIDGES.url).ask('look', ImageInput(data=IMAGE, media_type='image/png'))
    same(reply.body, seen('look'), 'answer')


async def auth():
    await refused(agent(BRIDGES.auth).ask('hello'))
    headers = {'Authorization': f'Bearer {CREDENTIALS}'}
    same((await agent(BRIDGES.auth, headers=headers).ask('hello')).body, heard('hello'), 'answer')


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
    asyncio.run(run(f'ag2 {version("ag2")}', operations))
