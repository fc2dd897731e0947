"""Tests of the runner: what it must not let pass, and how it reads the draft."""

import asyncio
import unittest

import grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from bindings import Grpc, Rest, Wrong, of_card
from bindings import Response as Got
from check import MISSING, check, collection, until
from corpus import Malformed, normal
from runner import Scope, Server, one_event, order
from runner import normal as event

TASK = {'id': 't1', 'status': {'state': 'TASK_STATE_COMPLETED'}, 'artifacts': [{'parts': [{'text': 'a'}]}]}


class Assertions(unittest.TestCase):
    def test_an_expectation_holds_or_says_what_is_wrong(self):
        for expected, holds in (
            ({'status': {'state': 'TASK_STATE_COMPLETED'}}, True),
            ({'status': {'state': 'TASK_STATE_FAILED'}}, False),
            ({'status': {'state': {'one_of': ['TASK_STATE_FAILED', 'TASK_STATE_COMPLETED']}}}, True),
            ({'id': {'type': 'string'}, 'artifacts': {'type': 'array', 'count_gte': 1}}, True),
            ({'artifacts': {'count': 0}}, False),
            ({'history': {'any_of': [{'absent': True}, {'count': 0}]}}, True),
            ({'history': {'exists': True}}, False),
            ({'history': {'type': 'array'}}, False),
            ({'artifacts': {'items': [{'parts': {'count_gte': 1}}]}}, True),
            ({'artifacts': {'items': {'name': {'exists': True}}}}, False),
            ({'artifacts': [{'parts': [{'text': {'matches': '^b'}}]}]}, False),
            ({'id': {'not': 't2'}}, True),
            ({'status': True}, False),
        ):
            self.assertEqual(check(expected, TASK) is None, holds, expected)

    def test_a_name_of_an_operator_is_a_member_if_its_argument_says_so(self):
        problem = {'type': 'about:blank', 'status': 404}
        self.assertIsNone(check({'type': {'type': 'string'}, 'status': {'type': 'number'}}, problem))
        self.assertIsNotNone(check({'type': {'type': 'number'}}, problem))

    def test_one_is_not_true(self):
        self.assertIsNotNone(check(True, 1))
        self.assertIsNotNone(check({'type': 'number'}, True))

    def test_collections(self):
        match = {'path': 'artifacts[*].parts[*]', 'match': {'text': 'a'}}
        self.assertIsNone(collection({'any': match}, TASK))
        self.assertIsNotNone(collection({'none': match}, TASK))
        self.assertIsNotNone(collection({'any': {**match, 'path': 'history[*]'}}, TASK))

    def test_conditions_of_a_poll(self):
        self.assertTrue(until('status.state in [TASK_STATE_FAILED, TASK_STATE_COMPLETED]', TASK))
        self.assertFalse(until('status.state == TASK_STATE_WORKING', TASK))
        with self.assertRaises(ValueError):
            until('status.state is final', TASK)


class Streams(unittest.TestCase):
    def events(self, *states):
        return [event({'statusUpdate': {'status': {'state': f'TASK_STATE_{state}'}}}) for state in states]

    def test_nothing_follows_the_end_and_submitted_comes_first(self):
        self.assertIsNone(
            order(self.events('SUBMITTED', 'WORKING', 'INPUT_REQUIRED', 'WORKING', 'COMPLETED'))
        )
        self.assertIn('event 1', order(self.events('COMPLETED', 'WORKING')))
        self.assertIn('event 1', order(self.events('WORKING', 'SUBMITTED')))

    def test_an_event_is_found_by_place_or_anywhere(self):
        events = self.events('WORKING', 'COMPLETED')
        wanted = {'status_update': {'status': {'state': 'TASK_STATE_COMPLETED'}}}
        self.assertIsNone(one_event({**wanted, 'match': 'any_position'}, events))
        self.assertIsNone(one_event({**wanted, 'index': 1}, events))
        self.assertIsNotNone(one_event({**wanted, 'index': 0}, events))
        self.assertIn('no event 7', one_event({**wanted, 'index': 7}, events))


class Drafts(unittest.TestCase):
    def test_its_spellings_become_those_of_the_grammar(self):
        test = normal(
            {
                'id': 'X-1',
                'level': 'must',
                'steps': [
                    {
                        'id': 'send',
                        'operation': 'send_message',
                        'params': {
                            'taskId': 't',
                            'message': {'parts': [{'data': 1, 'metadata': {'contentType': 'x/y'}}]},
                        },
                        'expect': {'status': 'error', 'error': {'exists': True}},
                    },
                    {
                        'id': 'set',
                        'operation': 'set_push_notification_config',
                        'params': {'taskId': 't', 'pushNotificationConfig': {'url': 'u'}},
                        'expect_error': {'code': 'UnsupportedOperationError'},
                    },
                    {'id': 'card', 'operation': 'get_agent_card', 'params': {'extended': True}},
                    {'id': 'get', 'operation': 'get_task', 'expect': {'task': {'id': 't'}}},
                ],
            }
        )
        send, push, card, get = test['steps']
        self.assertEqual(send['params']['message']['taskId'], 't')
        self.assertEqual(send['params']['message']['messageId'], '{{$uuid}}')
        self.assertEqual(send['params']['message']['parts'], [{'data': 1, 'mediaType': 'x/y'}])
        self.assertEqual((send['expect_error'], 'expect' in send), ({}, False))
        self.assertEqual(
            (push['operation'], push['params']), ('create_push_config', {'taskId': 't', 'url': 'u'})
        )
        self.assertEqual(push['expect_error'], {'error_type': 'UnsupportedOperationError'})
        self.assertEqual((card['operation'], card['params']), ('get_extended_agent_card', {}))
        self.assertEqual(get['expect'], {'body': {'task': {'id': 't'}}})

    def test_what_it_does_not_know_is_an_error(self):
        for test in (
            {'id': 'X', 'level': 'perhaps', 'steps': []},
            {'id': 'X', 'level': 'must', 'steps': [{'id': 'a', 'dance': {}}]},
            {'id': 'X', 'level': 'must', 'steps': [{'id': 'a', 'raw': {}, 'operation': 'get_task'}]},
        ):
            with self.assertRaises(Malformed):
                normal(test)


class Variables(unittest.TestCase):
    def test_captures_come_before_variables_and_nothing_is_made_up(self):
        scope = Scope({'url': '{{host}}/x', 'host': 'h'})
        scope.steps['send'] = {'response': {'task': {'id': 7}}}
        self.assertEqual(
            scope.fill({'a': '{{send.response.task.id}}', 'b': 'to {{url}}'}), {'a': 7, 'b': 'to h/x'}
        )
        with self.assertRaises(KeyError):
            scope.fill('{{send.taskId}}')


class Preconditions(unittest.TestCase):
    def test_a_server_meets_them_or_the_test_is_skipped(self):
        server = Server('u', {'capabilities': {'streaming': True}}, {'jsonrpc': None}, [])
        for wanted, met in (
            ({'capabilities': {'streaming': True, 'pushNotifications': False}}, True),
            ({'capabilities': {'streaming': False}}, False),
            ({'capabilities': {'authentication': True}}, False),
            ({'extensions': ['urn:x']}, False),
            ({'transport': ['jsonrpc']}, True),
            ({'transport': ['grpc']}, False),
        ):
            self.assertEqual(server.lacks(wanted) is None, met, wanted)


class Bindings(unittest.TestCase):
    def test_the_card_says_which_there_are(self):
        def interface(binding, version):
            return {'url': 'http://u', 'protocolBinding': binding, 'protocolVersion': version}

        interfaces = [interface('JSONRPC', '1.0'), interface('HTTP+JSON', '1.0'), interface('GRPC', '0.3')]
        self.assertEqual(list(of_card({'supportedInterfaces': interfaces}, None, {})), ['jsonrpc', 'rest'])

    def test_an_error_with_the_wrong_status_is_wrong(self):
        details = [{'@type': 'type.googleapis.com/google.rpc.ErrorInfo', 'reason': 'TASK_NOT_FOUND'}]
        for status in (404, 400):
            got = Got(status, {}, body={'error': {'code': status, 'message': 'm', 'details': details}})
            if status == 404:
                Rest(None, '', {}).unwrap(got, 'get_task')
                self.assertEqual(got.error['error_type'], 'TaskNotFoundError')
            else:
                with self.assertRaises(Wrong):
                    Rest(None, '', {}).unwrap(got, 'get_task')

    def test_grpc_speaks_to_a_server_of_the_normative_proto(self):
        asyncio.run(self.grpc())

    async def grpc(self):
        class Servicer(a2a_pb2_grpc.A2AServiceServicer):
            async def SendMessage(self, request, context):
                assert dict(context.invocation_metadata())['a2a-version'] == '1.0'
                return a2a_pb2.SendMessageResponse(task=a2a_pb2.Task(id=request.message.message_id))

            async def ListTasks(self, request, context):
                return a2a_pb2.ListTasksResponse(tasks=[a2a_pb2.Task(id='t')])

            async def SubscribeToTask(self, request, context):
                yield a2a_pb2.StreamResponse(task=a2a_pb2.Task(id=request.id))

            async def GetTask(self, request, context):
                info = any_pb2.Any()
                info.Pack(error_details_pb2.ErrorInfo(reason='TASK_NOT_FOUND', domain='a2a-protocol.org'))
                status = status_pb2.Status(code=5, message='gone', details=[info])
                context.set_trailing_metadata((('grpc-status-details-bin', status.SerializeToString()),))
                await context.abort(getattr(grpc.StatusCode, request.id), 'gone')

        server = grpc.aio.server()
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(Servicer(), server)
        port = server.add_insecure_port('127.0.0.1:0')
        await server.start()
        binding = Grpc(f'127.0.0.1:{port}', {'Authorization': 'Bearer t'})
        try:
            sent = await binding.call('send_message', {'message': {'messageId': 'm', 'later': 1}})
            self.assertEqual(sent.result, {'task': {'id': 'm'}})
            listed = await binding.call('list_tasks', {'contextId': 'c', 'includeArtifacts': False})
            self.assertEqual(listed.result, {'tasks': [{'id': 't'}], 'nextPageToken': ''})
            streamed = await binding.call('subscribe_to_task', {'id': 't'})
            self.assertEqual(streamed.events, [{'task': {'id': 't'}}])
            missing = await binding.call('get_task', {'id': 'NOT_FOUND'})
            self.assertEqual(
                (missing.error['error_type'], missing.error['message']), ('TaskNotFoundError', 'gone')
            )
            with self.assertRaises(Wrong):
                await binding.call('get_task', {'id': 'UNKNOWN'})
            self.assertIsNone(check({'absent': True}, MISSING))
        finally:
            await binding.channel.close()
            await server.stop(None)


if __name__ == '__main__':
    unittest.main()
