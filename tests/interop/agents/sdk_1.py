"""An agent made with a2a-sdk 1.x. The first word of a message says what it does."""

import argparse
import asyncio

from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, Task, TaskState, TaskStatus
from serve import listen, serve
from starlette.applications import Starlette


class Agent(AgentExecutor):
    async def execute(self, context, queue):
        task = context.current_task
        if not task:
            task = Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        words = context.get_user_input().split()
        word = 'answer' if context.current_task else (words or ['echo'])[0]
        await getattr(self, word)(context, updater)

    async def echo(self, context, updater):
        await updater.start_work()
        text = Part(text=f'echo: {context.get_user_input()}')
        await updater.add_artifact([text], artifact_id='answer')
        files = [part for part in context.message.parts if not part.HasField('text')]
        if files:
            await updater.add_artifact(files, artifact_id='copy', name='copy')
        await updater.complete()

    async def stream(self, context, updater):
        await updater.start_work(updater.new_agent_message([Part(text='thinking')]))
        for nth, text in enumerate(['one ', 'two ', 'three']):
            await updater.add_artifact(
                [Part(text=text)], artifact_id='answer', append=nth > 0, last_chunk=nth == 2
            )
        await updater.complete()

    async def ask(self, context, updater):
        await updater.requires_input(updater.new_agent_message([Part(text='which?')]))

    async def answer(self, context, updater):
        await updater.add_artifact([Part(text=f'you said {context.get_user_input()}')], artifact_id='answer')
        await updater.complete()

    async def wait(self, context, updater):
        await updater.start_work()
        await asyncio.sleep(3600)

    async def fail(self, context, updater):
        await updater.failed(updater.new_agent_message([Part(text='no model')]))

    async def reject(self, context, updater):
        await updater.reject(updater.new_agent_message([Part(text='not my job')]))

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--binding', default='JSONRPC')
    parser.add_argument('--no-streams', action='store_true')
    args = parser.parse_args()
    listener, port = listen()
    card = AgentCard(
        name='a2a-sdk',
        description='an agent of a2a-sdk',
        version='1',
        supported_interfaces=[
            AgentInterface(
                url=f'http://127.0.0.1:{port}/a2a', protocol_binding=args.binding, protocol_version='1.0'
            )
        ],
        capabilities=AgentCapabilities(streaming=not args.no_streams),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='all', name='all', description='everything', tags=['all'])],
    )
    handler = DefaultRequestHandlerV2(
        agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=card
    )
    if args.binding == 'JSONRPC':
        routes = create_jsonrpc_routes(handler, '/a2a')
    else:
        routes = create_rest_routes(handler, path_prefix='/a2a')
    serve(Starlette(routes=[*create_agent_card_routes(card), *routes]), listener)


main()
