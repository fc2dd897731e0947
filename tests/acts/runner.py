"""Runs the tests of the corpus over one binding.

A test runs against the first server whose card meets its preconditions, since no one server can offer what one test needs
present and another absent. What the corpus leaves to the runner is in `special.py`.
"""

import asyncio
import re
import traceback
import uuid

from bindings import DEADLINE, STREAMS, VERSION, Response, Wrong
from check import MISSING, check, collection, follow, until

TERMINAL = {f'TASK_STATE_{name}' for name in ('COMPLETED', 'FAILED', 'CANCELED', 'REJECTED')}


class Server:
    """A server with its card, and the bindings that the card names."""

    def __init__(self, url, card, bindings, tokens):
        self.url, self.card, self.bindings, self.tokens = url, card, bindings, tokens

    def lacks(self, preconditions):
        """The precondition that it does not meet."""
        capabilities = self.card.get('capabilities') or {}
        for name, wanted in (preconditions.get('capabilities') or {}).items():
            if name == 'authentication':
                has = bool(self.card.get('securityRequirements'))
            else:
                has = capabilities.get(name, False)
            if has != wanted:
                return f'{name} is {has}'
        skills = {skill['id'] for skill in self.card.get('skills') or []}
        extensions = {extension['uri'] for extension in capabilities.get('extensions') or []}
        for what, wanted, has in (
            ('skill', [skill['id'] for skill in preconditions.get('skills') or []], skills),
            ('extension', preconditions.get('extensions') or [], extensions),
            ('binding', preconditions.get('transport') or [], set(self.bindings)),
        ):
            if not set(wanted) <= has:
                return f'no {what} {", ".join(set(wanted) - has)}'
        return None


class Scope:
    """The variables of a test: what its steps captured, before what it was given."""

    def __init__(self, variables):
        self.variables, self.steps = variables, {}

    def fill(self, value):
        """The value with its variables filled in; a text that is only a variable becomes what that is."""
        if isinstance(value, dict):
            return {name: self.fill(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.fill(element) for element in value]
        if not isinstance(value, str):
            return value
        whole = re.fullmatch(r'\{\{([^{}]+)\}\}', value)
        if whole:
            return self.look_up(whole[1].strip())
        return re.sub(r'\{\{([^{}]+)\}\}', lambda found: str(self.look_up(found[1].strip())), value)

    def look_up(self, name):
        if name == '$uuid':
            return str(uuid.uuid4())
        step, _, rest = name.partition('.')
        found = follow(rest, self.steps[step]) if step in self.steps and rest else []
        if found:
            return found[0]
        if name in self.variables:
            return self.fill(self.variables[name])
        raise KeyError(f'nothing defines {{{{{name}}}}}')


class Case:
    """One run of a test."""

    def __init__(self, test, server, binding, http, webhooks, special):
        self.test, self.server, self.http, self.webhooks, self.special = test, server, http, webhooks, special
        self.binding = server.bindings[binding]
        self.inbox = webhooks.inbox()
        # The runner's own values replace those of the corpus, whose webhook is nobody's.
        self.scope = Scope(
            {**test['variables'], 'baseUrl': server.url, 'webhookUrl': self.inbox.url, **special.variables}
        )

    async def run(self):
        """What is wrong, or `None`."""
        try:
            for step in self.test['steps']:
                wrong = await self.step(self.special.step(self.test, step))
                if wrong:
                    return f'{step["id"]}: {wrong}'
            for assertion in self.test.get('assertions') or []:
                wrong = self.named(assertion)
                if wrong:
                    return wrong
            await self.special.after(self)
        except (Wrong, AssertionError) as error:
            return str(error)
        except TimeoutError:
            return f'no end within {DEADLINE} s'
        except Exception:
            return traceback.format_exc()
        return None

    async def step(self, step):
        if 'assertion' in step:
            return self.named(step['assertion'])
        if step.get('delay_ms'):
            await asyncio.sleep(step['delay_ms'] / 1000)
        repeat = step.get('repeat') or {}
        for _ in range(repeat.get('max_attempts', 10)):
            got = await self.send(step)
            root = got.events or (got.body if 'raw' in step else got.result)
            if not repeat or until(self.scope.fill(repeat['until']), root):
                break
            await asyncio.sleep(repeat.get('delay_ms', 1000) / 1000)
        else:
            return f'{repeat["until"]} did not come true; the last answer was {root!r:.300}'
        captured = {'response': root, 'error': got.error, 'headers': got.headers}
        self.scope.steps[step['id']] = captured
        wrong = self.judge(step, got, root)
        if wrong:
            return wrong
        for name, path in (step.get('capture') or {}).items():
            found = follow(path, root)
            if not found:
                return f'{path} is not in the answer {root!r:.300}'
            captured[name] = found[0]
        return next(filter(None, (self.named(each) for each in step.get('assertions') or [])), None)

    async def send(self, step):
        if 'raw' in step:
            return await self.binding.raw(self.scope.fill(step['raw']))
        if step['operation'] == 'get_agent_card':
            response = await self.http.get(f'{self.server.url}/.well-known/agent-card.json', headers=VERSION)
            return Response(response.status_code, dict(response.headers), result=response.json())
        return await self.binding.call(step['operation'], self.scope.fill(step['params']))

    def judge(self, step, got, root):
        """What is wrong with an answer."""
        if 'expect_error' in step:
            if not got.error:
                return f'expected an error, got {root!r:.300}'
            return check(self.scope.fill(step['expect_error']), got.error, 'error')
        if got.error:
            return f'unexpected error: {got.error!r:.500}'
        expect = self.scope.fill(step.get('expect') or {})
        stream = step.get('expect_stream')
        streamed = stream is not None or step.get('operation') in STREAMS
        return (
            check(expect.get('status', MISSING), got.status, 'status') if 'status' in expect else None
        ) or (
            check(expect.get('headers') or {}, got.headers, 'headers')
            or check({} if streamed else expect.get('body') or {}, root)
            or (self.stream(self.scope.fill(stream or {}), got.events) if streamed else None)
        )

    def stream(self, expect, events):
        events = [normal(event) for event in events]
        if not events:
            return 'the stream had no event'
        for name, wrong in (
            ('min_count', len(events) < expect.get('min_count', 0)),
            ('max_count', len(events) > expect.get('max_count', len(events))),
        ):
            if wrong:
                return f'the stream had {len(events)} events, {name} is {expect[name]}'
        if expect.get('ordering') == 'monotonic_state' and (wrong := order(events)):
            return wrong
        for wanted in expect.get('events') or []:
            wrong = one_event(dict(wanted), events)
            if wrong:
                return wrong
        for i, event in enumerate(events):
            if wrong := check(expect.get('each_event') or {}, event, f'event {i}'):
                return wrong
        return check(expect.get('final_event') or {}, events[-1], 'the last event')

    def named(self, assertion):
        assertion = self.scope.fill(assertion)
        wrong = collection(assertion, assertion['source'])
        return wrong and f'{assertion.get("id", "assertion")}: {wrong}'


def normal(event):
    """An event, with the members of what it holds at the top too, where the corpus looks for some of them."""
    for name, alias in (
        ('statusUpdate', 'status_update'),
        ('artifactUpdate', 'artifact_update'),
        ('task', 'task'),
        ('message', 'message'),
    ):
        if isinstance(event.get(name), dict):
            return {**event[name], **event, alias: event[name]}
    return event


def order(events):
    """The place at which states run backwards."""
    last = None
    for i, event in enumerate(events):
        state = (event.get('status') or {}).get('state')
        if state is None:
            continue
        if last in TERMINAL or (state == 'TASK_STATE_SUBMITTED' and last not in (None, state)):
            return f'event {i} is {state}, after {last}'
        last = state
    return None


def one_event(wanted, events):
    """What is wrong with the event that a test wants somewhere or at an index."""
    description, where, index = (wanted.pop(name, None) for name in ('description', 'match', 'index'))
    candidates = events if where == 'any_position' or index is None else events[index : index + 1]
    wrong = [check(wanted, event, 'an event') for event in candidates]
    if None in wrong:
        return None
    return f'{description or wanted}: {wrong[0] if wrong else f"there is no event {index}"}'


async def run(tests, binding, servers, http, webhooks, special, report):
    """Runs the tests that are for this binding, one after the other: lists show what others left behind."""
    for test in tests:
        if binding not in (test.get('transport') or [binding]) or 'client_response' in test['steps'][0]:
            continue
        able = [server for server in servers if binding in server.bindings]
        lacking = [server.lacks(test.get('preconditions') or {}) for server in able]
        if None not in lacking:
            report(test, 'skipped', f'no server meets its preconditions: {"; ".join(lacking)}')
            continue
        server = able[lacking.index(None)]
        wrong = await Case(test, server, binding, http, webhooks, special).run()
        report(test, 'failed' if wrong else 'passed', wrong or '')
