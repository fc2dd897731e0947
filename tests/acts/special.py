"""What the corpus asks of its runner in words: credentials, webhooks, several streams at once, headers, the schema.

Such a test is described as "Runner MUST …", and its steps alone show less. What is done for it here comes after its
steps, in the function that is registered for its id.
"""

import asyncio
import contextlib
import uuid

from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict

from bindings import Http, JsonRpc
from runner import TERMINAL

# Longer than any id may be.
REJECTED_CONTEXT = 'c' * 10_000
AFTER = {}


def after(*ids):
    def register(function):
        AFTER.update(dict.fromkeys(ids, function))
        return function

    return register


class Special:
    """The values that the runner has to bring, and what it checks beside the steps."""

    def __init__(self, variables):
        self.variables = variables

    @classmethod
    async def prepare(cls, servers, http):
        """Creates a task of another caller, on the server that knows several."""
        server = next(server for server in servers if server.tokens)
        other = JsonRpc(http, server.url, {'Authorization': f'Bearer {server.tokens[1]}'})
        created = await other.call('send_message', message('tck-complete-task for another caller'))
        return cls(
            {
                'otherUserTaskId': created.result['task']['id'],
                # Callers have no permissions of their own: a token is known or it is not.
                'insufficientAuthToken': 'a-token-that-nobody-has',
            }
        )

    def step(self, test, step):
        """The step, with the context that the server rejects where the test asks the runner for one."""
        if test['id'] != 'CORE-CTX-001':
            return step
        sent = {**step['params']['message'], 'contextId': REJECTED_CONTEXT}
        return {**step, 'params': {**step['params'], 'message': sent}}

    async def after(self, case):
        if check := AFTER.get(case.test['id']):
            await check(case)


def message(text, **configuration):
    sent = {'messageId': str(uuid.uuid4()), 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    return {'message': sent, **({'configuration': configuration} if configuration else {})}


def last(case, what='response'):
    """What the last step of the case got."""
    return case.scope.steps[case.test['steps'][-1]['id']][what]


@after('CARD-CACHE-001')
async def cached(case):
    headers = last(case, 'headers')
    assert 'max-age' in headers.get('cache-control', ''), f'Cache-Control is {headers.get("cache-control")!r}'
    assert headers.get('etag'), 'there is no ETag'


@after('CARD-SCHEMA-001')
async def is_card(case):
    # The proto is the normative schema; an unknown member or a wrong type raises.
    ParseDict(last(case), a2a_pb2.AgentCard())


@after('DM-SERIAL-002')
async def is_response(case):
    ParseDict(last(case), a2a_pb2.SendMessageResponse())


@after('REST-CT-001')
async def in_its_own_type(case):
    found = last(case, 'headers').get('content-type', '')
    assert found.startswith('application/a2a+json'), f'Content-Type is {found!r}'


@after('JSONRPC-CT-001')
async def in_json(case):
    found = last(case, 'headers').get('content-type', '')
    assert found.startswith('application/json'), f'Content-Type is {found!r}'


@after('SEC-AUTH-003')
async def looks_missing(case):
    """The two errors of the test differ in the id that was asked for, and in nothing else."""
    errors = [case.scope.steps[step['id']]['error'] for step in case.test['steps']]
    ids = [case.scope.fill(step['params']['id']) for step in case.test['steps']]
    one, two = (
        {**error, 'message': error['message'].replace(id, 'ID')}
        for error, id in zip(errors, ids, strict=True)
    )
    assert one == two, f'{one!r} differs from {two!r}'


async def start(case):
    """A task that works for some seconds."""
    started = await case.binding.call(
        'send_message', message('tck-long-running for streams', returnImmediately=True)
    )
    return {'id': started.result['task']['id']}


async def follow(case, task, events=None):
    """The events of a subscription: all of them, or the first few before hanging up."""
    seen = []
    async with contextlib.aclosing(case.binding.events('subscribe_to_task', task)) as stream:
        async for event in stream:
            seen.append(event)
            if len(seen) == events:
                break
    return seen


def ended(events):
    state = (events[-1].get('statusUpdate') or events[-1].get('task') or {}).get('status', {}).get('state')
    assert state in TERMINAL, f'the stream ended with {events[-1]!r:.300}'


@after('STREAM-MULTI-001')
async def two_see_the_same(case):
    task = await start(case)
    one, two = await asyncio.gather(follow(case, task), follow(case, task))
    ended(one)
    # The first event is the task as it was when each of them came.
    assert one[1:] == two[1:], f'{one!r} differs from {two!r}'


@after('STREAM-MULTI-002')
async def one_hangs_up(case):
    task = await start(case)
    _, other = await asyncio.gather(follow(case, task, events=1), follow(case, task))
    ended(other)


@after('STREAM-RESUB-001')
async def comes_back(case):
    task = await start(case)
    await follow(case, task, events=1)
    ended(await follow(case, task))


@after('SEC-PUSH-001', 'PUSH-DELIV-001', 'PUSH-DELIV-002', 'PUSH-DELIV-003')
async def delivers(case):
    """Every delivery is a `StreamResponse` with the credentials of its configuration, up to the end of the task."""

    def is_last(event):
        return (event.get('statusUpdate') or event.get('task') or {}).get('status', {}).get(
            'state'
        ) in TERMINAL

    deliveries = await case.inbox.until(is_last)
    wanted = case.test['steps'][-1]['params'].get('authentication')
    for headers, body in deliveries:
        ParseDict(body, a2a_pb2.StreamResponse())
        if wanted:
            expected = f'{wanted["scheme"]} {wanted["credentials"]}'
            assert headers['authorization'] == expected, f'Authorization is {headers["authorization"]!r}'


@after('SEC-AUTH-001', 'SEC-AUTH-004')
async def nobody_else(case):
    """What the body says in JSON, the status must say in HTTP: the scheme of the card is one of HTTP."""
    assert isinstance(case.binding, Http)
    answer = await case.binding.raw({'method': 'POST', 'path': '/', 'body': {}})
    assert answer.status == 401 and answer.headers.get('www-authenticate'), (
        f'{answer.status}, {answer.headers}'
    )
