"""a2a-sdk, A2A 1.0: everything that its client offers, over every binding."""

import asyncio
from importlib.metadata import version
from pathlib import Path

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from google.protobuf.json_format import ParseDict
from harness import CREDENTIALS, TOKEN, Webhooks, arguments, authorized, cut, message_id, same, tell
from jwt import PyJWK

BINDINGS = {'JSON-RPC': 'JSONRPC', 'HTTP+JSON': 'HTTP+JSON', 'gRPC': 'GRPC'}
COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


class Case:
    """One binding: a client that streams and one that does not."""

    def __init__(self, url, config, binding, http, webhooks):
        self.url, self.config, self.binding, self.http, self.webhooks = url, config, binding, http, webhooks

    async def card(self):
        self.agent = await A2ACardResolver(self.http, self.url).get_agent_card(
            signature_verifier=lambda card: verify_card(card, self.config)
        )
        assert self.agent.capabilities.streaming
        self.streaming, self.blocking = self.client(True), self.client(False)
        extended = await self.blocking.get_extended_agent_card(GetExtendedAgentCardRequest())
        same(extended.name, self.agent.name, 'name on the extended card')

    def client(self, streaming):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[self.binding],
        )
        return ClientFactory(config).create(self.agent)

    def message(self, prefix, task=None, **configuration):
        return SendMessageRequest(
            message=Message(
                message_id=message_id(prefix),
                role=Role.ROLE_USER,
                parts=[Part(text='hello')],
                task_id=task.id if task else '',
            ),
            configuration=SendMessageConfiguration(**configuration),
        )

    async def send_for_task(self, prefix, task=None, **configuration):
        [event] = [e async for e in self.blocking.send_message(self.message(prefix, task, **configuration))]
        assert event.HasField('task'), event
        return event.task

    async def get(self, task):
        return await self.blocking.get_task(GetTaskRequest(id=task.id))

    async def send(self):
        task = await self.send_for_task('tck-artifact-data')
        same(task.status.state, COMPLETED, 'state')
        same(task.artifacts[0].parts[0].data.struct_value['count'], 42, 'data of the artifact')
        same(await self.get(task), task, 'the task again')
        [event] = [e async for e in self.blocking.send_message(self.message('tck-message-response'))]
        same(event.message.parts[0].text, 'Direct message response', 'text of the message')

    async def errors(self):
        try:
            await self.blocking.get_task(GetTaskRequest(id='no-such-task'))
        except TaskNotFoundError:
            return
        raise AssertionError('a task that does not exist was found')

    async def stream(self):
        events = [e async for e in self.streaming.send_message(self.message('tck-stream-artifact-chunked'))]
        task = folded(events)
        same(task.status.state, COMPLETED, 'state')
        same(''.join(part.text for part in task.artifacts[0].parts), 'chunk-1 chunk-2', 'text of the artifact')
        sameness(task, await self.get(task))

    async def resubscribe(self):
        stream = self.streaming.send_message(self.message('test-resubscribe-message-id'))
        async with cut(stream):
            task = (await anext(stream)).task
            # In the middle: the turn works, and goes on for seconds.
            working = await anext(stream)
            same(working.status_update.status.state, TaskState.TASK_STATE_WORKING, 'state')
        events = [e async for e in self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))]
        same(events[0].WhichOneof('payload'), 'task', 'the first event')
        task = folded(events)
        same(task.status.state, COMPLETED, 'state')
        sameness(task, await self.get(task))

    async def follow(self):
        """A task that waits for input, and turns that happen while nobody listens."""
        task = await self.send_for_task('tck-input-required')
        same(task.status.state, INPUT_REQUIRED, 'state')
        stream = self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        async with cut(stream):
            same((await anext(stream)).WhichOneof('payload'), 'task', 'the first event')
            await self.send_for_task('tck-input-required', task)
            await anext(stream)
        await self.send_for_task('tck-input-required', task)
        stream = self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        async with cut(stream):
            events = [await anext(stream)]
            said = [m for m in events[0].task.history if m.role == Role.ROLE_USER]
            same(len(said), 3, 'messages of the user in the snapshot')
            await self.send_for_task('tck-stream-artifact-chunked', task)
            events += [e async for e in stream]
        task = folded(events)
        same(task.status.state, COMPLETED, 'state')
        sameness(task, await self.get(task))

    async def cancel(self):
        task = await self.send_for_task('tck-cancel', return_immediately=True)
        stream = self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))
        async with cut(stream):
            events = [await anext(stream)]
            canceled = await self.blocking.cancel_task(CancelTaskRequest(id=task.id))
            events += [e async for e in stream]
        for seen in (canceled, folded(events), await self.get(task)):
            same(seen.status.state, TaskState.TASK_STATE_CANCELED, 'state')

    async def list(self):
        tasks = [await self.send_for_task('tck-complete-task')]
        context = tasks[0].context_id
        for _ in range(2):
            request = self.message('tck-complete-task')
            request.message.context_id = context
            [event] = [e async for e in self.blocking.send_message(request)]
            tasks.append(event.task)
        seen, token = [], ''
        while True:
            page = await self.blocking.list_tasks(
                ListTasksRequest(context_id=context, page_size=2, page_token=token)
            )
            same(page.total_size, 3, 'size of the list')
            seen += [task.id for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        same(seen, [task.id for task in reversed(tasks)], 'tasks, newest first')

    def push(self, inbox, task=None, id=''):
        return TaskPushNotificationConfig(
            id=id,
            task_id=task.id if task else '',
            url=inbox.url,
            token=TOKEN,
            authentication=AuthenticationInfo(scheme='Bearer', credentials=CREDENTIALS),
        )

    async def push_configs(self):
        assert self.agent.capabilities.push_notifications, 'the card does not offer push notifications'
        task = await self.send_for_task('tck-input-required')
        # The server names a configuration that comes without a name.
        made = [
            await self.blocking.create_task_push_notification_config(self.push(self.webhooks.inbox(), task, id))
            for id in ('', 'mine')
        ]
        ids = {config.id for config in made}
        assert made[0].id and made[1].id == 'mine', f'ids {ids}'
        got = await self.blocking.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(task_id=task.id, id=made[0].id)
        )
        same((got.id, got.task_id, got.url), (made[0].id, task.id, made[0].url), 'configuration')
        same(await self.listed(task), ids, 'configurations')
        await self.blocking.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made[0].id)
        )
        same(await self.listed(task), {made[1].id}, 'configurations after one was deleted')

    async def listed(self, task):
        request = ListTaskPushNotificationConfigsRequest(task_id=task.id)
        return {c.id for c in (await self.blocking.list_task_push_notification_configs(request)).configs}

    async def push_delivery(self):
        kept, deleted = self.webhooks.inbox(), self.webhooks.inbox()
        task = await self.send_for_task('tck-input-required')
        await self.blocking.create_task_push_notification_config(self.push(kept, task))
        gone = await self.blocking.create_task_push_notification_config(self.push(deleted, task, 'gone'))
        await self.blocking.delete_task_push_notification_config(
            DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=gone.id)
        )
        await self.send_for_task('tck-stream-artifact-chunked', task)
        await self.delivered(kept, task)
        assert deleted.deliveries.empty(), 'a deleted configuration was delivered to'

    async def push_inline(self):
        inbox = self.webhooks.inbox()
        task = await self.send_for_task('tck-artifact-text', task_push_notification_config=self.push(inbox))
        await self.delivered(inbox, task)

    async def delivered(self, inbox, task):
        """Every event of the task, up to its end, with its credentials."""

        def last(body):
            event = body.get('statusUpdate') or body.get('task') or {}
            return event.get('status', {}).get('state') == 'TASK_STATE_COMPLETED'

        deliveries = await inbox.until(last)
        authorized(deliveries)
        artifacts = 0
        for headers, body in deliveries:
            same(headers['content-type'].split(';')[0], 'application/a2a+json', 'Content-Type')
            event = ParseDict(body, StreamResponse())
            update = getattr(event, event.WhichOneof('payload'))
            same(update.id if event.HasField('task') else update.task_id, task.id, 'task')
            artifacts += event.HasField('artifact_update') or len(event.task.artifacts)
        assert artifacts, f'no artifact was delivered: {deliveries}'


def folded(events):
    """The task that a stream tells of: its first snapshot and every update to it."""
    assert events[0].HasField('task'), f'the first event is {events[0]}'
    task = events[0].task
    for event in events[1:]:
        match event.WhichOneof('payload'):
            case 'status_update':
                task.status.CopyFrom(event.status_update.status)
            case 'artifact_update':
                update = event.artifact_update
                known = [a for a in task.artifacts if a.artifact_id == update.artifact.artifact_id]
                if known and update.append:
                    known[0].parts.extend(update.artifact.parts)
                else:
                    task.artifacts.append(update.artifact)
            case other:
                raise AssertionError(f'{other} after the first event')
    return task


def sameness(told, got):
    """What the stream told is what the task is."""
    same(told.id, got.id, 'id')
    same(told.status, got.status, 'status')
    # A task holds the text of an artifact in one piece, however it was streamed.
    def content(task):
        return {a.artifact_id: ''.join(part.text for part in a.parts) for a in task.artifacts}

    same(content(told), content(got), 'artifacts')


def verify_card(card: AgentCard, config):
    """Verifies the signatures with the SDK's verifier. There must be one if the configuration has a key to sign with."""
    a2a = config.get('a2a', {})
    sections = (a2a, a2a.get('card', {}))
    keys = [value for section in sections for key, value in section.items() if key.startswith('sign')]
    if not card.signatures:
        assert not keys, 'the configuration has a key to sign with, the card has no signature'
        return

    def verifying_key(kid, jku):
        assert kid, 'the signature names no key'
        if not jku:
            return public_key(keys)
        published = httpx.get(jku).raise_for_status().json()['keys']
        [jwk] = [jwk for jwk in published if jwk['kid'] == kid]
        return PyJWK(jwk)

    create_signature_verifier(verifying_key, ['ES256', 'EdDSA', 'RS256'])(card)


def public_key(keys):
    """The public half of the key whose file the configuration names."""
    for value in keys:
        reference = value.get('key', value) if isinstance(value, dict) else {}
        if isinstance(reference, dict) and 'file' in reference:
            return load_pem_private_key(Path(reference['file']).read_bytes(), None).public_key()
    raise AssertionError('the signature has no jku, and the configuration no key file')


async def main():
    url, config = arguments()
    webhooks = Webhooks()
    async with httpx.AsyncClient(timeout=30) as http:
        bindings = {}
        for name, binding in BINDINGS.items():
            case = Case(url, config, binding, http, webhooks)
            bindings[name] = [
                ('card', case.card),
                ('send', case.send),
                ('errors', case.errors),
                ('stream', case.stream),
                ('resubscribe', case.resubscribe),
                ('follow', case.follow),
                ('cancel', case.cancel),
                ('list', case.list),
                ('push configs', case.push_configs),
                ('push delivery', case.push_delivery),
                ('push inline', case.push_inline),
            ]
        await tell(f'a2a-sdk {version("a2a-sdk")} (1.0)', bindings)


if __name__ == '__main__':
    asyncio.run(main())
