"""google-adk: `RemoteA2aAgent`, as a runner runs it."""

import asyncio
from importlib.metadata import version

import httpx
from a2a.client import ClientConfig, ClientFactory
from framework import CREDENTIALS, IMAGE, Bridges, heard, run, same, seen
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

BRIDGES = Bridges()


class Conversation:
    """A session with the remote agent."""

    def __init__(self, url, streaming=True, token=None):
        headers = {'Authorization': f'Bearer {token}'} if token else {}
        http = httpx.AsyncClient(timeout=30, headers=headers)
        agent = RemoteA2aAgent(
            name='remote',
            agent_card=f'{url}/.well-known/agent-card.json',
            a2a_client_factory=ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)),
        )
        self.runner = InMemoryRunner(agent=agent, app_name='interop')
        self.session = None

    async def events(self, *parts):
        if not self.session:
            self.session = await self.runner.session_service.create_session(app_name='interop', user_id='user')
        parts = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
        events = self.runner.run_async(
            user_id='user', session_id=self.session.id, new_message=types.Content(role='user', parts=parts)
        )
        return [event async for event in events]

    async def say(self, *parts):
        """The text that a program reads: the last final response that has one."""
        events = await self.events(*parts)
        errors = [event.error_message for event in events if event.error_message]
        assert not errors, errors
        finals = [text(event) for event in events if event.is_final_response() and text(event)]
        assert finals, f'no final response has a text: {[(e.partial, text(e)) for e in events]}'
        return finals[-1]

    async def kept(self):
        """What the next agent of the session would read."""
        service = self.runner.session_service
        session = await service.get_session(app_name='interop', user_id='user', session_id=self.session.id)
        return [text(event) for event in session.events if event.author == 'remote']


def text(event):
    parts = event.content.parts if event.content and event.content.parts else []
    return ''.join(part.text or '' for part in parts if not part.thought)


async def send():
    # It refuses a card whose addresses are of another host than its own.
    for url in (BRIDGES.url, BRIDGES.url.replace('127.0.0.1', 'localhost')):
        same(await Conversation(url, streaming=False).say('hello there'), heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    conversation = Conversation(url)
    same(await conversation.say(said), heard(said), 'final response')
    kept = await conversation.kept()
    assert heard(said) in [text.strip() for text in kept], f'the session keeps {kept}'


async def turns():
    for streaming in (False, True):
        conversation = Conversation(BRIDGES.url, streaming)
        await conversation.say('one')
        await conversation.say('two')
        same(await conversation.say('three'), heard('three', 'one', 'two'), f'third answer, {streaming=}')


async def approval():
    for streaming in (False, True):
        conversation = Conversation(BRIDGES.runs, streaming)
        events = await conversation.events('danger')
        calls = [call for event in events for call in event.get_function_calls()]
        assert calls, f'nothing was asked: {[text(event) for event in events]}, {streaming=}'
        answer = types.FunctionResponse(id=calls[-1].id, name=calls[-1].name, response={'result': 'yes'})
        said = await conversation.say(types.Part(function_response=answer))
        same(said, heard('danger', approval='once'), f'answer after the approval, {streaming=}')
        same(await conversation.say('after'), heard('after', 'danger'), f'third answer, {streaming=}')


async def file():
    image = types.Part(inline_data=types.Blob(mime_type='image/png', data=IMAGE, display_name='dot.png'))
    same(await Conversation(BRIDGES.url, streaming=False).say('look', image), seen('look'), 'answer')


async def auth():
    events = await Conversation(BRIDGES.auth, streaming=False).events('hello')
    assert any(event.error_message for event in events), 'answered without a token'
    conversation = Conversation(BRIDGES.auth, streaming=False, token=CREDENTIALS)
    same(await conversation.say('hello'), heard('hello'), 'answer')


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
    asyncio.run(run(f'google-adk {version("google-adk")}', operations))
