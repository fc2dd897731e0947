"""Removes personal data from a message before a model sees it, and restores it in the answer.

The upstream gets `[email-1]` instead of the address. The caller gets the address wherever the answer mentions
`[email-1]`. Nothing is stored: the placeholders live in this instance, and each turn has its own.
"""

import json
import re

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import config, control, events, http
from wit_world.imports.types import (
    Capabilities, Content_Text, Description, Failure, FailureKind, FinalState, Needs, Outcome, Part, SetupContext,
    Turn, Usage,
)

KEY = "API_SERVER_KEY"

# The first match wins, so narrow patterns come first.
KINDS = [
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")),
    ("card", re.compile(r"\b\d(?:[ -]?\d){12,18}\b")),
    ("ip", re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")),
    ("phone", re.compile(r"(?<!\w)\+?\d(?:[ ()/-]?\d){6,13}\b")),
]
PLACEHOLDER = re.compile(r"\[(?:%s)-\d+\]" % "|".join(name for name, _ in KINDS))
LONGEST_PLACEHOLDER = 16

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "base_url": {
            "type": "string",
            "description": "The gateway's OpenAI-shaped API",
            "default": "http://127.0.0.1:8642/v1",
        },
        "model": {"type": "string", "description": "Model to ask for", "default": "hermes-agent"},
    },
}


class Redaction:
    """The placeholders of one turn."""

    def __init__(self) -> None:
        self.placeholders: dict[str, str] = {}
        self.originals: dict[str, str] = {}
        self.held = ""

    def redact(self, text: str) -> str:
        for kind, pattern in KINDS:
            text = pattern.sub(lambda found: self._placeholder(kind, found.group()), text)
        return text

    def _placeholder(self, kind: str, original: str) -> str:
        if original not in self.placeholders:
            count = sum(1 for known in self.originals if known.startswith(f"[{kind}-")) + 1
            placeholder = f"[{kind}-{count}]"
            self.placeholders[original] = placeholder
            self.originals[placeholder] = original
        return self.placeholders[original]

    def restore(self, text: str) -> str:
        return PLACEHOLDER.sub(lambda found: self.originals.get(found.group(), found.group()), text)

    def restore_piece(self, piece: str, last: bool = False) -> str:
        """The same for a text in pieces: the beginning of a placeholder is held back until the rest arrives."""
        text = self.held + piece
        start = text.rfind("[")
        cut = len(text)
        if not last and start != -1 and "]" not in text[start:] and len(text) - start < LONGEST_PLACEHOLDER:
            cut = start
        self.held = text[cut:]
        return self.restore(text[:cut])


class Strategy(exports.Strategy):
    def describe(self) -> Description:
        return Description(
            name="redact",
            display_name="Redact",
            description="Takes personal data out of a message before a model sees it",
            version="0.1.0",
            settings_schema=json.dumps(SCHEMA),
            capabilities=Capabilities(False, False, False, False, False, False, False),
            idle_timeout_seconds=None,
            streaming=True,
            needs=Needs(
                egress=["POST {setting:base_url}/chat/completions", "GET {setting:base_url}/health"],
                secrets=[KEY],
                callbacks=False,
            ),
            metadata=None,
        )

    def setup(self, context: SetupContext) -> None:
        base = json.loads(context.settings)["base_url"].rstrip("/")
        response = fetch(http.Request("GET", f"{base}/health", [], b"", 5_000, None))
        if response.status >= 500:
            raise upstream(f"the gateway answers {response.status}")

    def execute(self, turn: Turn) -> Outcome:
        settings = json.loads(turn.settings)
        redaction = Redaction()
        body = {
            "model": settings["model"],
            "messages": [{"role": "user", "content": redaction.redact(turn.text)}],
            "stream": turn.streaming,
        }
        headers = [("content-type", "application/json")]
        if config.has_secret(KEY):
            headers.append(("authorization", "Bearer {secret:%s}" % KEY))
        url = settings["base_url"].rstrip("/") + "/chat/completions"
        request = http.Request("POST", url, headers, json.dumps(body).encode(), None, None)
        if turn.streaming:
            return stream(request, redaction)
        response = fetch(request)
        if response.status != 200:
            raise upstream(f"the gateway answers {response.status}")
        answer = parse(response.body)
        try:
            text = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise upstream("the gateway's answer has no text")
        return outcome([redaction.restore(text)], answer.get("usage"))

    def cancel(self, turn: Turn, checkpoint: bytes | None) -> None:
        # The connection is closed already, which stops the gateway.
        pass


def stream(request: http.Request, redaction: Redaction) -> Outcome:
    try:
        exchange = http.open(request)
    except Err as error:
        raise failure(error.value)
    with exchange:
        if exchange.status() != 200:
            raise upstream(f"the gateway answers {exchange.status()}")
        usage = None
        try:
            while (event := exchange.next_event()) is not None and event.data != "[DONE]":
                chunk = parse(event.data)
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", []):
                    emit(redaction.restore_piece(choice.get("delta", {}).get("content") or ""))
        except Err as error:
            raise failure(error.value)
    emit(redaction.restore_piece("", last=True))
    # The emitted deltas are the answer.
    return outcome([], usage)


def emit(text: str) -> None:
    if text:
        events.emit(events.Event_TextDelta(text))


def fetch(request: http.Request) -> http.Response:
    try:
        return http.fetch(request)
    except Err as error:
        raise failure(error.value)


def parse(text: bytes | str) -> dict:
    try:
        return json.loads(text)
    except ValueError:
        raise upstream("the gateway's answer is no JSON")


def outcome(texts: list[str], usage: dict | None) -> Outcome:
    parts = [Part(Content_Text(text), None, None, None) for text in texts]
    cost = usage and Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))
    return Outcome(FinalState.COMPLETED, parts, cost or None, None)


def upstream(message: str) -> Err:
    return Err(Failure(FailureKind.UPSTREAM, message, True, None))


def failure(error: http.Error) -> Err:
    """The failure of a call without a response."""
    kinds = {
        http.ErrorKind.DENIED: FailureKind.DENIED,
        http.ErrorKind.CANCELLED: FailureKind.CANCELLED,
        http.ErrorKind.TIMED_OUT: FailureKind.TIMED_OUT,
    }
    kind = FailureKind.CANCELLED if control.cancelled() else kinds.get(error.kind, FailureKind.UPSTREAM)
    return Err(Failure(kind, error.message, kind == FailureKind.UPSTREAM, None))
