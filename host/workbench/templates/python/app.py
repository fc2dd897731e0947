"""{{name}}: sends each turn to an OpenAI-compatible API and returns the answer.

Calls block, and the host runs other turns meanwhile. Each turn has its own instance.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import config, events, http
from wit_world.imports.types import (
    Capabilities, Content_Text, Description, Failure, FailureKind, FinalState, Needs, Outcome, Part, SetupContext, Turn,
)

# The host fills it in; this code never sees it.
KEY = "UPSTREAM_KEY"

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "base_url": {"type": "string", "default": "https://api.example.com/v1"},
        "model": {"type": "string", "default": "a-model"},
    },
}


class Strategy(exports.Strategy):
    def describe(self) -> Description:
        """Declares the name, the settings and the needs. The operator decides what is granted."""
        return Description(
            name="{{name}}",
            display_name="{{name}}",
            description="Sends a turn to an OpenAI-shaped API",
            version="0.1.0",
            settings_schema=json.dumps(SCHEMA),
            capabilities=Capabilities(False, False, False, False, False, False, False),
            idle_timeout_seconds=None,
            streaming=True,
            needs=Needs(
                egress=["POST {setting:base_url}/chat/completions", "GET {setting:base_url}/models"],
                secrets=[KEY],
                callbacks=False,
            ),
            metadata=None,
        )

    def setup(self, context: SetupContext) -> None:
        """Checks that the upstream can be reached, before the first turn and periodically."""
        response = called(http.fetch, request(json.loads(context.settings), "GET", "/models", timeout_ms=5_000))
        if response.status != 200:
            raise upstream(f"it answers {response.status}")

    def execute(self, turn: Turn) -> Outcome:
        settings = json.loads(turn.settings)
        body = {
            "model": settings["model"],
            "messages": [{"role": "user", "content": turn.text}],
            "stream": turn.streaming,
        }
        call = request(settings, "POST", "/chat/completions", json.dumps(body).encode())
        if turn.streaming:
            return stream(call)
        response = called(http.fetch, call)
        if response.status != 200:
            raise upstream(f"it answers {response.status}")
        try:
            text = json.loads(response.body)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError):
            raise upstream("its answer has no text")
        return Outcome(FinalState.COMPLETED, [Part(Content_Text(text), None, None, None)], None, None)

    def cancel(self, turn: Turn, checkpoint: bytes | None) -> None:
        """The connection is closed already. Stop work that the upstream still does for this turn."""


def request(settings: dict, method: str, path: str, body: bytes = b"", timeout_ms: int | None = None) -> http.Request:
    headers = [("content-type", "application/json")] if body else []
    if config.has_secret(KEY):
        headers.append(("authorization", "Bearer {secret:%s}" % KEY))
    return http.Request(method, settings["base_url"].rstrip("/") + path, headers, body, timeout_ms, None)


def stream(call: http.Request) -> Outcome:
    """Passes the answer on as it arrives."""
    with called(http.open, call) as exchange:
        if exchange.status() != 200:
            raise upstream(f"it answers {exchange.status()}")
        while (event := called(exchange.next_event)) is not None and event.data != "[DONE]":
            for choice in json.loads(event.data).get("choices", []):
                if text := choice.get("delta", {}).get("content"):
                    events.emit(events.Event_TextDelta(text))
    # The emitted text is the answer.
    return Outcome(FinalState.COMPLETED, [], None, None)


def called(function, *args):
    """Makes a call. If there is no response, the turn fails."""
    try:
        return function(*args)
    except Err as error:
        kinds = {
            http.ErrorKind.DENIED: FailureKind.DENIED,
            http.ErrorKind.CANCELLED: FailureKind.CANCELLED,
            http.ErrorKind.TIMED_OUT: FailureKind.TIMED_OUT,
        }
        kind = kinds.get(error.value.kind, FailureKind.UPSTREAM)
        raise Err(Failure(kind, error.value.message, kind == FailureKind.UPSTREAM, None))


def upstream(message: str) -> Err:
    return Err(Failure(FailureKind.UPSTREAM, message, True, None))
