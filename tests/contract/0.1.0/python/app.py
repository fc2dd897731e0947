"""Calls every function of the contract once, and answers with what it saw."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import callback, config, control, events, http, log, span, state, tools
from wit_world.imports.types import (
    Capabilities, Content_Data, Content_Text, Description, Failure, FailureKind, FinalState, Needs, Outcome, Part,
    SetupContext, Turn, Usage,
)

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"url": {"type": "string"}, "greeting": {"type": "string", "default": "hello"}},
    "required": ["url"],
}


def kind(error: Err) -> str:
    return error.value.kind.name.lower().replace("_", "-")


def text_of(message) -> str:
    return " ".join(part.content.value for part in message.parts if isinstance(part.content, Content_Text))


def text_part(text: str) -> Part:
    return Part(Content_Text(text), None, None, None)


class Strategy(exports.Strategy):
    def describe(self) -> Description:
        return Description(
            name="witness-python",
            display_name="Witness",
            description="Calls every function of the contract once",
            version="0.1.0",
            settings_schema=json.dumps(SCHEMA),
            capabilities=Capabilities(False, False, False, False, False, False, False),
            idle_timeout_seconds=30,
            streaming=True,
            needs=Needs(egress=["GET {setting:url}/*"], secrets=["WITNESS_KEY"], callbacks=True),
            metadata='{"talaria/input-modes":["text/*"]}',
        )

    def setup(self, context: SetupContext) -> None:
        if "url" not in json.loads(context.settings):
            raise Err(Failure(FailureKind.INVALID_SETTINGS, "url is missing", False, None))

    def execute(self, turn: Turn) -> Outcome:
        if turn.text == "fail":
            raise Err(Failure(FailureKind.UPSTREAM, "asked to fail", True, '{"why":"asked"}'))
        if turn.text == "stream":
            events.emit(events.Event_TextDelta("one "))
            events.emit(events.Event_TextDelta("two"))
            return Outcome(FinalState.COMPLETED, [], None, None)
        seen = {
            "http": self.calls(json.loads(turn.settings)["url"]),
            "callback": self.callbacks(),
            "events": self.events(),
            "state": self.state(),
            "control": [
                control.remaining_ms() > 0, control.cancelled(), control.sleep(1), control.session("chat-id"),
            ],
            "config": [config.get("greeting"), config.has_secret("WITNESS_KEY")],
            "tools": [[tool.name for tool in tools.list()], tools.call("echo", '{"text":"hi"}')],
        }
        log.write(log.Level.INFO, "witnessed", '{"functions":"all"}')
        with span.Span("witness.look", [("language", "python")]) as opened:
            opened.set("seen", "all")
            opened.event("done")
        part = Part(Content_Data(json.dumps(seen)), None, None, None)
        return Outcome(FinalState.COMPLETED, [part], Usage(1, 2), '{"witness":true}')

    def calls(self, url: str) -> list:
        request = http.Request("GET", f"{url}/fetch", [("x-witness", "{secret:WITNESS_KEY}")], b"", 5_000, 1_000)
        response = http.fetch(request)
        with http.open(http.Request("GET", f"{url}/events", [], b"", None, None)) as exchange:
            typed = any(name == "content-type" for name, _ in exchange.headers())
            opened = [exchange.status(), typed, exchange.await_event(5_000), exchange.next_event().data]
        with http.open(http.Request("GET", f"{url}/raw", [], b"", None, None)) as exchange:
            raw = exchange.read(100).decode()
        try:
            http.fetch(http.Request("GET", "http://127.0.0.1:9/denied", [], b"", None, None))
            denied = "granted"
        except Err as error:
            denied = kind(error)
        return [response.status, response.body.decode(), *opened, raw, denied]

    def callbacks(self) -> list:
        with callback.expect("message-1") as pending:
            found = [pending.reply_url().startswith("http"), pending.overtakes()]
            try:
                pending.wait(1)
            except Err as error:
                found.append(kind(error))
        with callback.expect_in("chat", "message-2", 1_000) as pending:
            found.append(pending.reply_url().startswith("http"))
        return found

    def events(self) -> list:
        parts = [text_part("a piece")]
        events.emit(events.Event_Status("working"))
        events.emit(events.Event_Artifact(events.Artifact("a1", "name", None, parts, False, True, None)))
        events.emit(
            events.Event_ToolProgress(events.ToolProgress("t1", "tool", events.ToolState.STARTED, None, None))
        )
        events.emit(events.Event_Custom(events.Custom("witness", '{"n":1}')))
        asked = text_of(events.ask([text_part("first?")]))
        with events.pose([text_part("second?")]) as question:
            answer = None
            while answer is None:
                answer = question.wait(1_000)
        return [events.scrub("plain"), asked, text_of(answer)]

    def state(self) -> list:
        before = state.get("count")
        state.set("count", b"1")
        after = state.get("count")
        state.set("count", None)
        state.checkpoint(b"half")
        return [before is None, after.decode(), state.get("count") is None, len(state.history(5)) >= 0]

    def cancel(self, turn: Turn, checkpoint: bytes | None) -> None:
        log.write(log.Level.WARN, f"cancelled after {len(checkpoint or b'')} bytes", None)
