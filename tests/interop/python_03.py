"""a2a-sdk, A2A 0.3: everything that its client offers, over every binding.

It can neither list nor delete push configurations.
"""

import asyncio
from importlib.metadata import version

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
)
from harness import CREDENTIALS, TOKEN, Webhooks, arguments, authorized, cut, message_id, same, tell

BINDINGS = {'JSON-RPC': 'JSONRPC', 'HTTP+JSON': 'HTTP+JSON', 'gRPC': 'GRPC'}


class Case:
    """One binding: a client that streams and one that does not."""

    def __init__(self, url, binding, http, webhooks):
        self.url, self.binding, self.http, self.webhooks = url, binding, http, webhooks

    async def card(self):
        self.agent = await A2ACardResolver(self.http, self.url).get_agent_card()
        assert self.agent.capabilities.streaming
        self.streaming, self.blocking = self.client(True), self.client(False)
        same((await self.blocking.get_card()).name, self.agent.name, 'name on the extended card')

    def client(self, streaming, **config):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_transports=[self.binding],
            **config,
        )
        return ClientFactory(config).create(self.agent)

    def message(self, prefix, task=None):
        return Message(
            message_id=message_id(prefix),
            role=Role.user,
            parts=[Part(root=TextPart(text='hello'))],
            task_id=task.id if task else None,
        )

    async def send_for_task(self, prefix, task=None, client=None):
        client = client or self.blocking
        [(task, _)] = [event async for event in client.send_message(self.message(prefix, task))]
        return task

    async def get(self, task):
        return await self.blocking.get_task(TaskQueryParams(id=task.id))

    async def send(self):
        task = await self.send_for_task('tck-artifact-data')
        same(task.status.state, TaskState.completed, 'state')
        same(task.artifacts[0].parts[0].root.data['count'], 42, 'data of the artifact')
        same(await self.get(task), task, 'the task again')
        [message] = [event async for event in self.blocking.send_message(self.message('tck-message-response'))]
        same(message.parts[0].root.text, 'Direct message response', 'text of the message')

    async def errors(self):
        try:
            await self.blocking.get_task(TaskQueryParams(id='no-such-task'))
        except A2AClientJSONRPCError as error:
            return same(error.error.code, -32001, 'code')
        except A2AClientHTTPError as error:
            return same(error.status_code, 404, 'status')
        except grpc.aio.AioRpcError as error:
            return same(error.code(), grpc.StatusCode.NOT_FOUND, 'status')
        raise AssertionError('a task that does not exist was found')

    async def stream(self):
        message = self.message('tck-stream-artifact-chunked')
        *_, (task, last) = [event async for event in self.streaming.send_message(message)]
        assert last.final, f'the last event is not final: {last}'
        same(task.status.state, TaskState.completed, 'state')
        same(content(task), {'tck-artifact': 'chunk-1 chunk-2'}, 'artifacts')
        sameness(task, await self.get(task))

    async def resubscribe(self):
        stream = self.streaming.send_message(self.message('test-resubscribe-message-id'))
        async with cut(stream):
            task, _ = await anext(stream)
            # In the middle: the turn works, and goes on for seconds.
            _, working = await anext(stream)
            same(working.status.state, TaskState.working, 'state')
        *_, (task, last) = [event async for event in self.streaming.resubscribe(TaskIdParams(id=task.id))]
        assert last.final, f'the last event is not final: {last}'
        same(task.status.state, TaskState.completed, 'state')
        sameness(task, await self.get(task))

    async def follow(self):
        """A task that waits for input, and turns that happen while nobody listens."""
        task = await self.send_for_task('tck-input-required')
        same(task.status.state, TaskState.input_required, 'state')
        stream = self.streaming.resubscribe(TaskIdParams(id=task.id))
        async with cut(stream):
            await anext(stream)
            await self.send_for_task('tck-input-required', task)
            await anext(stream)
        await self.send_for_task('tck-input-required', task)
        stream = self.streaming.resubscribe(TaskIdParams(id=task.id))
        async with cut(stream):
            task, _ = await anext(stream)
            said = [message for message in task.history if message.role == Role.user]
            same(len(said), 3, 'messages of the user in the snapshot')
            await self.send_for_task('tck-stream-artifact-chunked', task)
            *_, (task, _) = [event async for event in stream]
        same(task.status.state, TaskState.completed, 'state')
        sameness(task, await self.get(task))

    async def cancel(self):
        task = await self.send_for_task('tck-cancel', client=self.client(False, polling=True))
        stream = self.streaming.resubscribe(TaskIdParams(id=task.id))
        async with cut(stream):
            await anext(stream)
            canceled = await self.blocking.cancel_task(TaskIdParams(id=task.id))
            *_, (followed, _) = [event async for event in stream]
        for seen in (canceled, followed, await self.get(task)):
            same(seen.status.state, TaskState.canceled, 'state')

    def push(self, inbox, **fields):
        return PushNotificationConfig(
            url=inbox.url,
            token=TOKEN,
            authentication=PushNotificationAuthenticationInfo(schemes=['Bearer'], credentials=CREDENTIALS),
            **fields,
        )

    async def push_configs(self):
        assert self.agent.capabilities.push_notifications, 'the card does not offer push notifications'
        task = await self.send_for_task('tck-input-required')
        inbox = self.webhooks.inbox()
        made = await self.blocking.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=self.push(inbox, id='mine'))
        )
        same((made.task_id, made.push_notification_config.id), (task.id, 'mine'), 'what was made')
        got = await self.blocking.get_task_callback(
            GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id='mine')
        )
        same((got.task_id, got.push_notification_config.url), (task.id, inbox.url), 'what was read')

    async def push_delivery(self):
        inbox = self.webhooks.inbox()
        task = await self.send_for_task('tck-input-required')
        await self.blocking.set_task_callback(
            TaskPushNotificationConfig(task_id=task.id, push_notification_config=self.push(inbox, id='mine'))
        )
        await self.send_for_task('tck-artifact-text', task)
        await self.delivered(inbox, task)

    async def push_inline(self):
        inbox = self.webhooks.inbox()
        client = self.client(False, push_notification_configs=[self.push(inbox)])
        task = await self.send_for_task('tck-artifact-text', client=client)
        await self.delivered(inbox, task)

    async def delivered(self, inbox, task):
        """The task, up to its end, with its credentials."""
        deliveries = await inbox.until(lambda body: body.get('status', {}).get('state') == 'completed')
        authorized(deliveries)
        for headers, body in deliveries:
            same(headers['content-type'].split(';')[0], 'application/json', 'Content-Type')
            same(Task.model_validate(body).id, task.id, 'task')
        told, got = Task.model_validate(deliveries[-1][1]), await self.get(task)
        # Not the whole status: over HTTP+JSON the client fills in what is absent.
        same(told.status.message.message_id, got.status.message.message_id, 'message of the status')
        same(content(told), content(got), 'artifacts')


def content(task):
    """A task holds the text of an artifact in one piece, however it was streamed."""
    return {a.artifact_id: ''.join(part.root.text for part in a.parts) for a in task.artifacts or []}


def sameness(told, got):
    """What the stream told is what the task is."""
    same(told.id, got.id, 'id')
    same(told.status, got.status, 'status')
    same(content(told), content(got), 'artifacts')


async def main():
    url, _ = arguments()
    webhooks = Webhooks()
    async with httpx.AsyncClient(timeout=30) as http:
        bindings = {}
        for name, binding in BINDINGS.items():
            case = Case(url, binding, http, webhooks)
            bindings[name] = [
                ('card', case.card),
                ('send', case.send),
                ('errors', case.errors),
                ('stream', case.stream),
                ('resubscribe', case.resubscribe),
                ('follow', case.follow),
                ('cancel', case.cancel),
                ('push configs', case.push_configs),
                ('push delivery', case.push_delivery),
                ('push inline', case.push_inline),
            ]
        await tell(f'a2a-sdk {version("a2a-sdk")} (0.3)', bindings)


if __name__ == '__main__':
    asyncio.run(main())
