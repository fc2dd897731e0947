"""An agent of google-adk behind its `to_a2a`. Its model is a function, so that no network is needed."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types
from serve import listen, serve


class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = [part for content in llm_request.contents for part in content.parts or []]
        texts = [part.text for part in said if part.text]
        files = sum(1 for part in said if part.inline_data)
        last = texts[-1] if texts else ''
        if last.startswith('fail'):
            raise RuntimeError('no model')
        if last.startswith('wait'):
            await asyncio.sleep(3600)
        memory = sum(1 for content in llm_request.contents if content.role == 'user')
        answer = f'echo: {last} (files {files}, turn {memory})'
        yield LlmResponse(content=types.Content(role='model', parts=[types.Part(text=answer)]))


listener, port = listen()
agent = LlmAgent(name='adk', model=Model(model='function'), description='an agent of ADK')
serve(to_a2a(agent, host='127.0.0.1', port=port), listener)
