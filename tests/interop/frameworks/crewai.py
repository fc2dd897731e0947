"""CrewAI: an agent that delegates by `a2a=`, with its defaults, and the delegation by itself.

A model decides what an agent delegates. Here a scripted one does: it asks for the texts that it was given, one after the
other, and then ends. The agent accepts `application/json` only, and streams: both are CrewAI's defaults. Its polling is driven
too. The model is shown the messages of a task's history and no artifacts, so that the agent must trust the remote one: its
result is then the remote agent's answer.
"""

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY='true', CREWAI_TRACING_ENABLED='false', OTEL_SDK_DISABLED='true')
os.environ.update(CREWAI_DISABLE_VERSION_CHECK='true')

import asyncio
import json
from importlib.metadata import version

from a2a.types import TaskState
from crewai import Agent, Task
from crewai.a2a.auth.client_schemes import BearerTokenAuth
from crewai.a2a.config import A2AClientConfig
from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation
from crewai.llms.base_llm import BaseLLM
from framework import CREDENTIALS, QUESTION, Bridges, heard, refused, run_each, same

BRIDGES = Bridges()
JSON = ['application/json']
POLLING = PollingConfig(interval=0.2)


def card(url):
    return f'{url}/.well-known/agent-card.json'


class Script(BaseLLM):
    """A model that delegates these texts."""

    def __init__(self, url, *texts):
        super().__init__(model='scripted')
        self.url, self.texts = url, list(texts)

    def call(self, *_, **__):
        text = self.texts.pop(0) if self.texts else None
        decision = {'a2a_ids': [card(self.url)] if text else [], 'message': text or 'done', 'is_a2a': bool(text)}
        return json.dumps(decision)

    def supports_function_calling(self):
        return False

    def supports_stop_words(self):
        return False


async def work(model):
    """An agent's result, with CrewAI's defaults but for its trust."""
    remote = A2AClientConfig(endpoint=card(model.url), trust_remote_completion_status=True)
    agent = Agent(role='clerk', goal='ask', backstory='none', llm=model, a2a=remote)
    task = Task(description='Ask the remote agent.', expected_output='its answer', agent=agent)
    return str(await asyncio.to_thread(agent.execute_task, task))


async def delegate(text, url=BRIDGES.url, updates=None, auth=None, **conversation):
    return await aexecute_a2a_delegation(
        endpoint=card(url), auth=auth, timeout=30, task_description=text, updates=updates or StreamingConfig(),
        accepted_output_modes=JSON, **conversation,
    )


def completed(result):
    same(result['status'], TaskState.completed, f'status of {result.get("error")}')
    return result['result']


async def send():
    same(completed(await delegate('hello there', updates=POLLING)), heard('hello there'), 'answer')


async def stream(url=BRIDGES.url, said='hello there'):
    same(await work(Script(url, said)), heard(said), 'result of the agent')


async def turns(updates):
    first = await delegate('one', updates=updates)
    context = next(message.context_id for message in reversed(first['history']) if message.context_id)
    conversation = {'context_id': context, 'conversation_history': first['history']}
    await delegate('two', updates=updates, **conversation)
    third = await delegate('three', updates=updates, **conversation)
    same(completed(third), heard('three', 'one', 'two'), 'third answer')


async def approval(updates):
    asked = await delegate('danger', BRIDGES.runs, updates)
    same(asked['status'], TaskState.input_required, 'status')
    assert QUESTION in asked['error'], asked
    history = asked['history']
    task = next(message for message in reversed(history) if message.task_id)
    conversation = {'context_id': task.context_id, 'conversation_history': history}
    allowed = await delegate('yes', BRIDGES.runs, updates, task_id=task.task_id, **conversation)
    same(completed(allowed), heard('danger', approval='once'), 'answer after the approval')
    after = await delegate('after', BRIDGES.runs, updates, **conversation)
    same(completed(after), heard('after', 'danger'), 'third answer')


async def auth():
    result = await delegate('hello', BRIDGES.auth, POLLING, BearerTokenAuth(token=CREDENTIALS))
    same(completed(result), heard('hello'), 'answer')
    await refused(answered(delegate('hello', BRIDGES.auth, POLLING)))


async def answered(call):
    return completed(await call)


if __name__ == '__main__':
    ways = {
        'streaming': {
            'stream': stream,
            'progress': lambda: stream(BRIDGES.runs, 'busy there'),
            'turns': lambda: turns(StreamingConfig()),
            'approval': lambda: approval(StreamingConfig()),
        },
        'polling': {
            'send': send,
            'turns': lambda: turns(POLLING),
            'approval': lambda: approval(POLLING),
            'auth': auth,
        },
    }
    asyncio.run(run_each(f'crewai {version("crewai")}', ways))
