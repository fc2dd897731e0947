"""What the Python scripts share: a webhook receiver, and how results are told.

A script gets the bridge's address and the configuration that the bridge runs with. It prints one JSON object a line,
`{"client", "binding", "operation", "seconds", "error"}`, where no error is `null`, and ends with 0 also when an
operation failed: `cargo xtask interop` reads the lines and judges. The bindings of a client run side by side, its
operations in order.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import json
import os
import time
import tomllib
import traceback
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

# An operation that takes longer has failed. The longest, a turn of 4 s that is resubscribed to, takes 5.
DEADLINE = 30
# How long a delivery may take that nothing else tells us of.
DELIVERY = 10

# A script that takes longer hangs where no operation is under way; it is ended, and says where.
TOTAL = 300

CREDENTIALS = 'interop-credentials'
TOKEN = 'interop-token'


def arguments():
    """The address of the bridge, and its configuration."""
    faulthandler.dump_traceback_later(TOTAL, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument('url')
    parser.add_argument('--config', type=Path)
    args = parser.parse_args()
    if not args.config:
        return args.url, {}
    # What it names is relative to it.
    os.chdir(args.config.parent)
    return args.url, tomllib.loads(args.config.read_text())


def message_id(prefix):
    """An id that asks for the behaviour named by its prefix."""
    return f'{prefix}-{uuid.uuid4()}'


def same(left, right, what):
    """Fails with both sides named."""
    assert left == right, f'{what}: {left!r} is not {right!r}'


async def tell(client, bindings, out=None):
    """Runs the operations of every binding: `{binding: [(operation, coroutine function)]}`. Lines go to standard output,
    or to `out` where a framework prints there too."""

    async def one(binding, operations):
        for name, operation in operations:
            start, error = time.monotonic(), None
            try:
                async with asyncio.timeout(DEADLINE):
                    await operation()
            except Exception:
                error = traceback.format_exc()
            line = {
                'client': client,
                'binding': binding,
                'operation': name,
                'seconds': time.monotonic() - start,
                'error': error,
            }
            print(json.dumps(line), file=out, flush=True)

    await asyncio.gather(*(one(binding, operations) for binding, operations in bindings.items()))


class Inbox:
    """What was delivered to one address."""

    def __init__(self, url):
        self.url = url
        self.deliveries = asyncio.Queue()

    async def until(self, last):
        """The deliveries up to the first whose body satisfies `last`."""
        seen = []
        try:
            async with asyncio.timeout(DELIVERY):
                while not (seen and last(seen[-1][1])):
                    seen.append(await self.deliveries.get())
        except TimeoutError:
            raise AssertionError(f'{DELIVERY} s without the last delivery; there were {seen}') from None
        return seen


class Webhooks:
    """A receiver on loopback. Every inbox has a path of its own."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        inboxes = self.inboxes = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get('content-length', 0)))
                inbox = inboxes.get(self.path)
                if inbox:
                    delivery = (self.headers, json.loads(body))
                    loop.call_soon_threadsafe(inbox.deliveries.put_nowait, delivery)
                self.send_response(200 if inbox else 404)
                self.send_header('content-length', '0')
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    def inbox(self):
        """A new address."""
        path = f'/{uuid.uuid4()}'
        inbox = Inbox(f'http://127.0.0.1:{self.server.server_port}{path}')
        self.inboxes[path] = inbox
        return inbox


def authorized(deliveries):
    """Every delivery carries what its configuration asked for."""
    for headers, body in deliveries:
        same(headers['authorization'], f'Bearer {CREDENTIALS}', f'Authorization of {body}')
        same(headers['x-a2a-notification-token'], TOKEN, f'X-A2A-Notification-Token of {body}')


@contextlib.asynccontextmanager
async def cut(stream):
    """Hangs up on a stream at the end of the block, wherever it is."""
    try:
        yield stream
    finally:
        await stream.aclose()
