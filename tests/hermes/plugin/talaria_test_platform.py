"""A platform of hermes-agent that speaks the molecule-a2a wire.

Written for the tests against the plugin contract of hermes-agent 0.19, so that they need no other package: a message
comes in as `POST /a2a/inbound`, and whatever the gateway wants to say in that chat goes out as a POST to the callback URL
that the chat's last message named, or to the configured one. The gateway does the rest: sessions, commands, approvals.

Not for production: a chat's callback URL is kept in memory for ever.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult

NAME = "molecule-a2a"
SECRET_HEADER = "X-Molecule-A2A-Secret"
CALLBACK_SECONDS = 30

log = logging.getLogger(__name__)


class Inbound:
    """A message that came in, or a ValueError with the words of the wire."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise ValueError("expected object")
        self.chat = str(body.get("chat_id") or body.get("peer_id") or "")
        self.content = body.get("content")
        if not self.chat or not isinstance(self.content, str) or not self.content:
            raise ValueError("chat_id and content required")
        self.message = str(body.get("message_id") or uuid.uuid4().hex)
        self.peer = str(body.get("peer_id") or self.chat)
        self.peer_name = str(body.get("peer_name") or self.peer)
        self.thread = str(body.get("thread_id") or "") or None
        self.callback = body.get("callback_url")
        self.raw = body


class Adapter(BasePlatformAdapter):
    """One listener for what comes in, one HTTP client for what goes out."""

    # Whoever knows the secret may speak; without this the gateway drops the messages of users that it does not know.
    authorization_is_upstream = True
    # The caller waits for one answer, so it must come in one piece.
    splits_long_messages = True
    # Nobody is there to say how an interrupted turn should go on.
    interactive_resume = False

    def __init__(self, config) -> None:
        super().__init__(config, Platform(NAME))
        extra = config.extra or {}
        self.host = extra.get("host", "127.0.0.1")
        self.port = int(extra.get("port", 8645))
        self.default_callback = extra.get("callback_url", "")
        self.secret = extra.get("shared_secret", "")
        self.callbacks: dict[str, str] = {}
        self.turns: set[asyncio.Task] = set()
        self.runner: web.AppRunner | None = None
        self.client: ClientSession | None = None

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        app = web.Application()
        app.router.add_post("/a2a/inbound", self.inbound)
        app.router.add_get("/a2a/health", self.health)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        try:
            await web.TCPSite(self.runner, self.host, self.port).start()
        except OSError as error:
            await self.runner.cleanup()
            self.runner = None
            self._set_fatal_error("port_in_use", f"{self.host}:{self.port}: {error}", retryable=False)
            return False
        self.client = ClientSession(timeout=ClientTimeout(total=CALLBACK_SECONDS))
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._mark_disconnected()
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None
        if self.client is not None:
            await self.client.close()
            self.client = None

    async def get_chat_info(self, chat_id: str) -> dict:
        return {"name": chat_id, "type": "dm", "chat_id": chat_id}

    async def send(self, chat_id, content, reply_to=None, metadata=None) -> SendResult:
        url = self.callbacks.get(chat_id) or self.default_callback
        if not url or self.client is None:
            return SendResult(success=False, error="no callback URL")
        body = {"chat_id": chat_id, "content": content, "reply_to": reply_to, "metadata": metadata or {}}
        headers = {SECRET_HEADER: self.secret} if self.secret else {}
        try:
            async with self.client.post(url, json=body, headers=headers) as response:
                status = response.status
        except (ClientError, asyncio.TimeoutError) as error:
            return SendResult(success=False, error=f"callback: {error}", retryable=True)
        if status >= 400:
            return SendResult(success=False, error=f"callback: HTTP {status}", retryable=status >= 500)
        return SendResult(success=True, message_id=uuid.uuid4().hex)

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "platform": NAME})

    async def inbound(self, request: web.Request) -> web.Response:
        given = request.headers.get(SECRET_HEADER, "")
        if self.secret and not hmac.compare_digest(given.encode(), self.secret.encode()):
            return refused(401, "unauthorized")
        try:
            body = await request.json()
        except ValueError:
            return refused(400, "invalid json")
        try:
            message = Inbound(body)
        except ValueError as error:
            return refused(400, str(error))
        if isinstance(message.callback, str) and message.callback:
            self.callbacks[message.chat] = message.callback
        event = MessageEvent(
            text=message.content,
            message_id=message.message,
            source=self.build_source(
                chat_id=message.chat,
                chat_name=message.peer_name,
                chat_type="dm",
                user_id=message.peer,
                user_name=message.peer_name,
                thread_id=message.thread,
            ),
            internal=True,
            raw_message=message.raw,
        )
        turn = asyncio.create_task(self.handle_message(event))
        self.turns.add(turn)
        turn.add_done_callback(self.turns.discard)
        return web.json_response({"ok": True, "queued": True})


def refused(status: int, why: str) -> web.Response:
    return web.json_response({"ok": False, "error": why}, status=status)


def register(ctx) -> None:
    """The entry point: hermes-agent calls it once, when the plugin is enabled."""
    ctx.register_platform(
        name=NAME,
        label="Molecule A2A (tests of Talaria)",
        adapter_factory=Adapter,
        check_fn=lambda: True,
        max_message_length=0,
        platform_hint="You are talking to another agent.",
    )
