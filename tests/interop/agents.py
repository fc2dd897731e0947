"""Talaria in front of an agent that speaks A2A: what a caller of talaria gets. The agents are in `agents/`; the first word
of a message says what the agent does."""

import asyncio
import json
import sys
import uuid

import httpx
from harness import arguments, same, tell

UNDER_WAY = ('TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING')


class Caller:
    """A caller of talaria, in JSON-RPC of 1.0."""

    def __init__(self, url, http):
        self.url, self.http = url, http

    def body(self, method, params):
        return {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}

    async def call(self, method, **params):
        response = await self.http.post(self.url, json=self.body(method, params), headers={'A2A-Version': '1.0'})
        answer = response.json()
        assert 'result' in answer, answer
        return answer['result']

    def message(self, *parts, **more):
        parts = [{'text': part} if isinstance(part, str) else part for part in parts]
        return {'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', 'parts': parts, **more}

    async def send(self, *parts, **more):
        result = await self.call('SendMessage', message=self.message(*parts, **more))
        return result.get('task') or result['message']

    async def begin(self, *parts, **more):
        message = self.message(*parts, **more)
        result = await self.call('SendMessage', message=message, configuration={'returnImmediately': True})
        return result['task']

    async def until(self, task, wanted):
        while not wanted(task):
            await asyncio.sleep(0.05)
            task = await self.call('GetTask', id=task['id'])
        return task

    async def settled(self, task):
        return await self.until(task, lambda task: task['status']['state'] not in UNDER_WAY)

    async def events(self, *parts):
        body = self.body('SendStreamingMessage', {'message': self.message(*parts)})
        headers = {'A2A-Version': '1.0', 'Accept': 'text/event-stream'}
        async with self.http.stream('POST', self.url, json=body, headers=headers) as response:
            return [
                json.loads(line.removeprefix('data: '))['result']
                async for line in response.aiter_lines()
                if line.startswith('data: ')
            ]


def texts(parts):
    return [part['text'] for part in parts if 'text' in part]


def answer(task):
    """The text of an answer, whatever its form."""
    if 'parts' in task:
        return ''.join(texts(task['parts']))
    reply = [artifact for artifact in task['artifacts'] if artifact['artifactId'] == 'reply']
    return ''.join(texts(reply[0]['parts']))


class Sdk:
    """The agents that are made with an SDK."""

    def __init__(self, caller, streams):
        self.caller, self.streams = caller, streams

    async def send(self):
        same(answer(await self.caller.send('echo hi')), 'echo: echo hi', 'answer')

    async def stream(self):
        events = await self.caller.events('stream')
        updates = [event['statusUpdate'] for event in events if 'statusUpdate' in event]
        messages = [update['status'].get('message', {}) for update in updates]
        chunks = [
            ''.join(texts(message['parts']))
            for message in messages
            if message.get('metadata', {}).get('talaria/chunk')
        ]
        same(''.join(chunks), 'one two three', 'pieces')
        if self.streams:
            same(len(chunks), 3, 'number of pieces')

    async def files(self):
        file = {'raw': 'cG5n', 'mediaType': 'image/png', 'filename': 'a.png'}
        task = await self.caller.send('echo', file, {'data': {'a': [1]}})
        same(answer(task), 'echo: echo', 'answer')
        [copy] = [artifact for artifact in task['artifacts'] if artifact['artifactId'] == 'copy']
        same(copy.get('name'), 'copy', 'name')
        same(copy['parts'][0], file, 'file')
        same(copy['parts'][1]['data'], {'a': [1]}, 'data')

    async def ask(self):
        asked = await self.caller.settled(await self.caller.begin('ask'))
        same(asked['status']['state'], 'TASK_STATE_INPUT_REQUIRED', 'state')
        same(texts(asked['status']['message']['parts']), ['which?'], 'question')
        done = await self.caller.send('red', taskId=asked['id'], contextId=asked['contextId'])
        same(answer(done), 'you said red', 'answer')

    async def cancel(self):
        task = await self.caller.begin('wait')
        task = await self.caller.until(task, lambda task: task['status']['state'] == 'TASK_STATE_WORKING')
        # Until the agent has named its task, there is nothing to cancel there.
        await asyncio.sleep(1)
        cancelled = await self.caller.call('CancelTask', id=task['id'])
        same(cancelled['status']['state'], 'TASK_STATE_CANCELED', 'state')

    async def fail(self):
        task = await self.caller.settled(await self.caller.begin('fail'))
        same(task['status']['state'], 'TASK_STATE_FAILED', 'state')
        same(texts(task['status']['message']['parts']), ['no model'], 'reason')

    async def reject(self):
        task = await self.caller.settled(await self.caller.begin('reject'))
        same(task['status']['state'], 'TASK_STATE_REJECTED', 'state')
        same(texts(task['status']['message']['parts']), ['not my job'], 'reason')

    def operations(self):
        names = ['send', 'stream', 'files', 'ask', 'cancel', 'fail', 'reject']
        return [(name, getattr(self, name)) for name in names]


class Adk(Sdk):
    """The agent of google-adk, which answers with its memory."""

    async def send(self):
        same(answer(await self.caller.send('hi')), 'echo: hi (files 0, turn 1)', 'answer')

    async def stream(self):
        events = await self.caller.events('hi')
        task = next(event['task'] for event in events if 'task' in event)
        done = await self.caller.settled(await self.caller.call('GetTask', id=task['id']))
        same(answer(done), 'echo: hi (files 0, turn 1)', 'answer')

    async def memory(self):
        context = str(uuid.uuid4())
        await self.caller.send('one', contextId=context)
        same(answer(await self.caller.send('two', contextId=context)), 'echo: two (files 0, turn 2)', 'answer')

    async def files(self):
        file = {'raw': 'cG5n', 'mediaType': 'image/png', 'filename': 'a.png'}
        same(answer(await self.caller.send('look', file)), 'echo: look (files 1, turn 1)', 'answer')

    def operations(self):
        names = ['send', 'stream', 'memory', 'files', 'cancel', 'fail']
        return [(name, getattr(self, name)) for name in names]


async def main():
    [name, binding, *more] = sys.argv[1:4]
    sys.argv[1:4] = []
    url, _ = arguments()
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        kind = Adk if name.startswith('google-adk') else Sdk
        agent = kind(Caller(url, http), streams='polled' not in more)
        await tell(name, {binding: agent.operations()})


asyncio.run(main())
