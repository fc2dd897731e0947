"""An agent made with a2a-sdk 0.3. The first word of a message says what it does."""

import argparse
import asyncio

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, Part, TextPart
from a2a.utils import new_task
from serve import listen, serve


def text(said):
    return Part(root=TextPart(text=said))


class Agent(AgentExecutor):
    async def execute(self, context, queue):
        task = context.current_task
        if not task:
            task = new_task(context.message)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)
        words = context.get_user_input().split()
        word = 'answer' if context.current_task else (words or ['echo'])[0]
        await getattr(self, word)(context, updater)

    async def echo(self, context, updater):
        await updater.start_work()
        await updater.add_artifact([text(f'echo: {context.get_user_input()}')], artifact_id='answer')
        files = [part for part in context.message.parts if part.root.kind != 'text']
        if files:
            await updater.add_artifact(files, artifact_id='copy', name='copy')
        await updater.complete()

    async def stream(self, context, updater):
        await updater.start_work(updater.new_agent_message([text('thinking')]))
        for nth, said in enumerate(['one ', 'two ', 'three']):
            await updater.add_artifact(
                [text(said)], artifact_id='answer', append=nth > 0, last_chunk=nth == 2
            )
        await updater.complete()

    async def ask(self, context, updater):
        await updater.requires_input(updater.new_agent_message([text('which?')]), final=True)

    async def answer(self, context, updater):
        await updater.add_artifact([text(f'you said {context.get_user_input()}')], artifact_id='answer')
        await updater.complete()

    async def wait(self, context, updater):
        await updater.start_work()
        await asyncio.sleep(3600)

    async def fail(self, context, updater):
        await updater.failed(updater.new_agent_message([text('no model')]))

    async def reject(self, context, updater):
        await updater.reject(updater.new_agent_message([text('not my job')]))

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--no-streams', action='store_true')
    args = parser.parse_args()
    listener, port = listen()
    card = AgentCard(
        name='a2a-sdk',
        description='an agent of a2a-sdk',
        version='1',
        url=f'http://127.0.0.1:{port}/',
        capabilities=AgentCapabilities(streaming=not args.no_streams),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[],
    )
    handler = DefaultRequestHandler(agent_executor=Agent(), task_store=InMemoryTaskStore())
    serve(A2AStarletteApplication(card, handler).build(), listener)


main()
