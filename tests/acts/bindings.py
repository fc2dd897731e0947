"""The bindings: an abstract operation as a request of JSON-RPC, HTTP+JSON or gRPC, and what came back as one form for all.

Methods, paths and errors follow the specification of A2A 1.0.1, which the corpus names as the authority over its own
tables. An answer that its binding does not permit, such as an error with the wrong HTTP status, fails the step.
"""

import asyncio
import json
from dataclasses import dataclass, field
from urllib.parse import quote

import grpc
from a2a.types import a2a_pb2
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc import error_details_pb2, status_pb2

VERSION = {'A2A-Version': '1.0'}
# Seconds for one request, and for a stream to end.
DEADLINE = 30

# Operation: the method of JSON-RPC and gRPC, the verb and path of HTTP+JSON, the messages of gRPC.
OPERATIONS = {
    'send_message': ('SendMessage', 'POST', '/message:send', 'SendMessageRequest', 'SendMessageResponse'),
    'send_streaming_message': (
        'SendStreamingMessage',
        'POST',
        '/message:stream',
        'SendMessageRequest',
        'StreamResponse',
    ),
    'get_task': ('GetTask', 'GET', '/tasks/{id}', 'GetTaskRequest', 'Task'),
    'list_tasks': ('ListTasks', 'GET', '/tasks', 'ListTasksRequest', 'ListTasksResponse'),
    'cancel_task': ('CancelTask', 'POST', '/tasks/{id}:cancel', 'CancelTaskRequest', 'Task'),
    'subscribe_to_task': (
        'SubscribeToTask',
        'POST',
        '/tasks/{id}:subscribe',
        'SubscribeToTaskRequest',
        'StreamResponse',
    ),
    'get_extended_agent_card': (
        'GetExtendedAgentCard',
        'GET',
        '/extendedAgentCard',
        'GetExtendedAgentCardRequest',
        'AgentCard',
    ),
    'create_push_config': (
        'CreateTaskPushNotificationConfig',
        'POST',
        '/tasks/{taskId}/pushNotificationConfigs',
        'TaskPushNotificationConfig',
        'TaskPushNotificationConfig',
    ),
    'get_push_config': (
        'GetTaskPushNotificationConfig',
        'GET',
        '/tasks/{taskId}/pushNotificationConfigs/{id}',
        'GetTaskPushNotificationConfigRequest',
        'TaskPushNotificationConfig',
    ),
    'list_push_configs': (
        'ListTaskPushNotificationConfigs',
        'GET',
        '/tasks/{taskId}/pushNotificationConfigs',
        'ListTaskPushNotificationConfigsRequest',
        'ListTaskPushNotificationConfigsResponse',
    ),
    'delete_push_config': (
        'DeleteTaskPushNotificationConfig',
        'DELETE',
        '/tasks/{taskId}/pushNotificationConfigs/{id}',
        'DeleteTaskPushNotificationConfigRequest',
        None,
    ),
}
STREAMS = ('send_streaming_message', 'subscribe_to_task')

# Error: the code of JSON-RPC, the reason of HTTP+JSON and gRPC, the HTTP status, the status of gRPC.
ERRORS = {
    'TaskNotFoundError': (-32001, 'TASK_NOT_FOUND', 404, 'NOT_FOUND'),
    'TaskNotCancelableError': (-32002, 'TASK_NOT_CANCELABLE', 400, 'FAILED_PRECONDITION'),
    'PushNotificationNotSupportedError': (
        -32003,
        'PUSH_NOTIFICATION_NOT_SUPPORTED',
        400,
        'FAILED_PRECONDITION',
    ),
    'UnsupportedOperationError': (-32004, 'UNSUPPORTED_OPERATION', 400, 'FAILED_PRECONDITION'),
    'ContentTypeNotSupportedError': (-32005, 'CONTENT_TYPE_NOT_SUPPORTED', 400, 'INVALID_ARGUMENT'),
    'InvalidAgentResponseError': (-32006, 'INVALID_AGENT_RESPONSE', 500, 'INTERNAL'),
    'ExtendedCardNotSupportedError': (
        -32007,
        'EXTENDED_AGENT_CARD_NOT_CONFIGURED',
        400,
        'FAILED_PRECONDITION',
    ),
    'ExtensionSupportRequiredError': (-32008, 'EXTENSION_SUPPORT_REQUIRED', 400, 'FAILED_PRECONDITION'),
    'VersionNotSupportedError': (-32009, 'VERSION_NOT_SUPPORTED', 400, 'FAILED_PRECONDITION'),
    'InvalidParamsError': (-32602, 'INVALID_PARAMS', 400, 'INVALID_ARGUMENT'),
    'MethodNotFoundError': (-32601, 'METHOD_NOT_FOUND', 404, 'UNIMPLEMENTED'),
    'JSONParseError': (-32700, 'PARSE_ERROR', 400, 'INVALID_ARGUMENT'),
    'InternalError': (-32603, 'INTERNAL_ERROR', 500, 'INTERNAL'),
}


class Wrong(Exception):
    """The answer is not one that the binding permits."""


@dataclass
class Response:
    """What came back. A raw step sees `body`, another the `result`; `error` holds `error_type`, `message`, `data`."""

    status: int
    headers: dict
    body: object = None
    result: object = None
    error: dict = None
    events: list = field(default_factory=list)


class Http:
    """What JSON-RPC and HTTP+JSON share."""

    def __init__(self, client, url, headers):
        self.client, self.url, self.headers = client, url.rstrip('/'), headers

    async def fetch(self, method, url, headers, content=None, stream=False):
        """The response; the events of a stream up to its end."""
        request = self.client.build_request(method, url, headers=headers, content=content, timeout=DEADLINE)
        async with asyncio.timeout(DEADLINE):
            response = await self.client.send(request, stream=True)
            try:
                got = Response(response.status_code, dict(response.headers))
                if stream and response.headers.get('content-type', '').startswith('text/event-stream'):
                    async for line in response.aiter_lines():
                        if line.startswith('data:'):
                            got.events.append(json.loads(line[5:]))
                else:
                    got.body = read(await response.aread())
                return got
            finally:
                await response.aclose()

    async def events(self, operation, params):
        """The events of a stream, as they come."""
        method, url, headers, content = self.request(operation, params)
        request = self.client.build_request(method, url, headers=headers, content=content, timeout=DEADLINE)
        response = await self.client.send(request, stream=True)
        try:
            async for line in response.aiter_lines():
                if line.startswith('data:'):
                    yield self.event(json.loads(line[5:]))
        finally:
            await response.aclose()

    async def raw(self, step):
        """A request as the test wrote it, without any header of ours."""
        content = step['body_raw'] if 'body_raw' in step else None
        if 'body' in step:
            content = json.dumps(step['body'])
        return await self.fetch(
            step['method'], self.url + step['path'], step.get('headers') or {}, content, stream=True
        )

    async def call(self, operation, params):
        got = await self.fetch(*self.request(operation, params), stream=operation in STREAMS)
        self.unwrap(got, operation)
        return got


class JsonRpc(Http):
    """JSON-RPC 2.0."""

    def request(self, operation, params):
        body = {'jsonrpc': '2.0', 'id': 'acts', 'method': OPERATIONS[operation][0], 'params': params}
        headers = {'Content-Type': 'application/json', **VERSION, **self.headers}
        return 'POST', self.url + '/', headers, json.dumps(body)

    def unwrap(self, got, operation):
        if got.events:
            got.events = [self.event(event) for event in got.events]
            return
        envelope = got.body
        if not isinstance(envelope, dict) or envelope.get('jsonrpc') != '2.0' or envelope.get('id') != 'acts':
            raise Wrong(f'HTTP {got.status} without an envelope of JSON-RPC: {envelope!r:.300}')
        if 'error' in envelope:
            got.error = of_jsonrpc(envelope['error'])
        else:
            got.result = envelope.get('result')

    def event(self, envelope):
        if envelope.get('jsonrpc') != '2.0' or 'result' not in envelope:
            raise Wrong(f'an event without a result: {envelope!r:.300}')
        return envelope['result']


class Rest(Http):
    """HTTP+JSON, in the media type that the specification prefers."""

    def request(self, operation, params):
        _, verb, path, *_ = OPERATIONS[operation]
        params = dict(params)
        for name in ('id', 'taskId'):
            if '{' + name + '}' in path:
                path = path.replace('{' + name + '}', quote(str(params.pop(name)), safe=''))
        headers = {'Accept': 'application/a2a+json, text/event-stream', **VERSION, **self.headers}
        if verb == 'POST':
            headers['Content-Type'] = 'application/a2a+json'
            return verb, self.url + path, headers, json.dumps(params)
        query = '&'.join(f'{name}={quote(plain(value), safe="")}' for name, value in params.items())
        return verb, self.url + path + (f'?{query}' if query else ''), headers

    def unwrap(self, got, operation):
        if got.events or got.status < 300:
            got.result = got.body
            return
        error = got.body.get('error') if isinstance(got.body, dict) else None
        if not isinstance(error, dict) or error.get('code') != got.status:
            raise Wrong(f'HTTP {got.status} without an error that says so: {got.body!r:.300}')
        got.error = of_details(error.get('message'), error.get('details') or [])
        expected = ERRORS.get(got.error['error_type'])
        if expected and expected[2] != got.status:
            raise Wrong(f'{got.error["error_type"]} with HTTP {got.status}, expected {expected[2]}')

    def event(self, event):
        return event


class Grpc:
    """gRPC, with the messages that a2a-sdk was built with from the normative proto."""

    def __init__(self, url, headers):
        self.channel = grpc.aio.insecure_channel(url.split('://')[-1])
        self.metadata = [(name.lower(), value) for name, value in {**VERSION, **headers}.items()]

    def stub(self, operation):
        method, _, _, request, response = OPERATIONS[operation]
        kind = getattr(a2a_pb2, response) if response else empty_pb2.Empty
        make = self.channel.unary_stream if operation in STREAMS else self.channel.unary_unary
        return make(
            f'/lf.a2a.v1.A2AService/{method}',
            request_serializer=getattr(a2a_pb2, request).SerializeToString,
            response_deserializer=kind.FromString,
        )

    def message(self, operation, params):
        # Members that no message has are for the JSON bindings, which must ignore them.
        return ParseDict(params, getattr(a2a_pb2, OPERATIONS[operation][3])(), ignore_unknown_fields=True)

    async def call(self, operation, params):
        got = Response(200, {})
        try:
            if operation in STREAMS:
                async with asyncio.timeout(DEADLINE):
                    got.events = [event async for event in self.events(operation, params)]
            else:
                call = self.stub(operation)
                answer = await call(self.message(operation, params), metadata=self.metadata, timeout=DEADLINE)
                got.result = MessageToDict(answer)
                if operation == 'list_tasks':
                    # A field without presence is there, whatever its value.
                    got.result = {'tasks': [], 'nextPageToken': '', **got.result}
        except grpc.aio.AioRpcError as error:
            got.status, got.error = 0, of_grpc(error)
        return got

    async def events(self, operation, params):
        call = self.stub(operation)(self.message(operation, params), metadata=self.metadata, timeout=DEADLINE)
        try:
            async for event in call:
                yield MessageToDict(event)
        finally:
            call.cancel()

    async def raw(self, step):
        raise Wrong('a raw step is a request of HTTP; the test must say which binding it is for')


def of_jsonrpc(error):
    codes = {code: name for name, (code, *_) in ERRORS.items()}
    code = error.get('code')
    return {'error_type': codes.get(code), 'message': error.get('message'), 'data': error.get('data')}


def of_details(message, details):
    reasons = {reason: name for name, (_, reason, *_) in ERRORS.items()}
    info = next((each for each in details if 'ErrorInfo' in each.get('@type', '')), {})
    return {'error_type': reasons.get(info.get('reason')), 'message': message, 'data': details}


def of_grpc(error):
    """The error with its details, which must be there and must fit the status."""
    trailer = dict(error.trailing_metadata() or ()).get('grpc-status-details-bin', b'')
    details = []
    for packed in status_pb2.Status.FromString(trailer).details:
        info = error_details_pb2.ErrorInfo()
        if packed.Unpack(info):
            details.append({'@type': packed.type_url, 'reason': info.reason, 'domain': info.domain})
        else:
            details.append({'@type': packed.type_url})
    found = of_details(error.details(), details)
    expected = ERRORS.get(found['error_type'])
    if expected and expected[3] != error.code().name:
        raise Wrong(f'{found["error_type"]} with {error.code().name}, expected {expected[3]}')
    return found


def read(content):
    """JSON, or the text that is not."""
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return content.decode(errors='replace')


def plain(value):
    return json.dumps(value) if isinstance(value, bool) else str(value)


def of_card(card, client, headers):
    """A binding for each interface of 1.x on the card, by the corpus's name for it."""
    makers = {
        'JSONRPC': ('jsonrpc', lambda url: JsonRpc(client, url, headers)),
        'HTTP+JSON': ('rest', lambda url: Rest(client, url, headers)),
        'GRPC': ('grpc', lambda url: Grpc(url, headers)),
    }
    found = {}
    for interface in card['supportedInterfaces']:
        known = makers.get(interface['protocolBinding'])
        if known and interface['protocolVersion'].startswith('1.'):
            found.setdefault(known[0], known[1](interface['url']))
    return found
