"""An A2A agent on a2a-sdk's own server, which makes one call to the upstream: `a2a_sdk.py ADDRESS UPSTREAM`.

It is the SDK's documented set-up: its default request handler, tasks in memory, one message as the answer. It runs on
uvicorn with uvloop and httptools, in one process, without access log, and with one pooled httpx client.
"""

import sys

import httpx
import uvicorn
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role
from starlette.applications import Starlette


class Relay(AgentExecutor):
    def __init__(self, upstream):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx.AsyncClient(limits=limits, timeout=60, trust_env=False)
        self.url = f'{upstream}/chat/completions'

    async def execute(self, context, event_queue):
        body = {
            'model': 'hermes-agent',
            'messages': [{'role': 'user', 'content': context.get_user_input()}],
            'stream': False,
        }
        answer = await self.client.post(self.url, json=body)
        answer.raise_for_status()
        said = answer.json()['choices'][0]['message']['content']
        await event_queue.enqueue_event(new_text_message(said, context_id=context.context_id, role=Role.ROLE_AGENT))

    async def cancel(self, context, event_queue):
        raise NotImplementedError


def main(address, upstream):
    host, port = address.rsplit(':', 1)
    card = AgentCard(
        name='relay',
        description='Passes messages on',
        version='1.0.0',
        supported_interfaces=[
            AgentInterface(url=f'http://{address}/', protocol_binding='JSONRPC', protocol_version='1.0')
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=['text/plain'],
        default_output_modes=['text/plain'],
        skills=[AgentSkill(id='relay', name='Relay', description='Passes messages on', tags=['relay'])],
    )
    handler = DefaultRequestHandler(agent_executor=Relay(upstream), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=create_agent_card_routes(card) + create_jsonrpc_routes(handler, '/'))
    uvicorn.run(app, host=host, port=int(port), access_log=False, log_level='warning', loop='uvloop', http='httptools')


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2])
