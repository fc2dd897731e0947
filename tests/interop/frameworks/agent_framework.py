"""Microsoft Agent Framework: `A2AAgent`."""

import asyncio
from importlib.metadata import version

import httpx
from a2a.client import A2ACardResolver
from agent_framework import Content, Message
from agent_framework_a2a import A2AAgent
from framework import CREDENTIALS, IMAGE, QUESTION, Bridges, heard, refused, run, same, seen

BRIDGES = Bridges()


async def agent(url, token=None):
    headers = {'Authorization': f'Bearer {token}'} if token else {}
    http = httpx.AsyncClient(timeout=30, headers=headers)
    card = await A2ACardResolver(http, url).get_agent_card()
    return A2AAgent(name='remote', agent_card=card, url=url, http_client=http)


async def streamed(remote, message, **options):
    """The pieces that were shown, and the final response."""
    stream = remote.run(message, stream=True, **options)
    shown = [update.text or '' async for update in stream]
    return shown, await stream.get_final_response()


class Conversation:
    """A session with an agent, streaming or not."""

    def __init__(self, remote, streaming):
        self.remote, self.streaming, self.session = remote, streaming, remote.create_session()

    async def say(self, text):
        if self.streaming:
            return (await streamed(self.remote, text, session=self.session))[1]
        return await self.remote.run(text, session=self.session)


async def send():
    response = await (await agent(BRIDGES.url)).run('hello there')
    same(response.text, heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    shown, response = await streamed(await agent(url), said)
    same(response.text, heard(said), 'final response')
    if url == BRIDGES.url:
        same(''.join(shown), heard(said), 'text that was shown piece by piece')


async def turns():
    for streaming in (False, True):
        conversation = Conversation(await agent(BRIDGES.url), streaming)
        await conversation.say('one')
        await conversation.say('two')
        same((await conversation.say('three')).text, heard('three', 'one', 'two'), f'third answer, {streaming=}')


async def approval():
    for streaming in (False, True):
        conversation = Conversation(await agent(BRIDGES.runs), streaming)
        asked = await conversation.say('danger')
        assert asked.user_input_requests, f'nothing was asked: {asked.text}, {streaming=}'
        assert QUESTION in asked.text, asked.text
        allowed = await conversation.say('yes')
        same(allowed.text, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
        same((await conversation.say('after')).text, heard('after', 'danger'), f'third answer, {streaming=}')


async def file():
    image = Content.from_data(IMAGE, media_type='image/png')
    response = await (await agent(BRIDGES.url)).run(
        Message(role='user', contents=[Content.from_text('look'), image])
    )
    same(response.text, seen('look'), 'answer')


async def auth():
    await refused((await agent(BRIDGES.auth)).run('hello'))
    response = await (await agent(BRIDGES.auth, CREDENTIALS)).run('hello')
    same(response.text, heard('hello'), 'answer')


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
    asyncio.run(run(f'agent-framework-a2a {version("agent-framework-a2a")}', operations))
