"""What the drivers of the Python frameworks share: their arguments, the texts that they expect, and how they tell.

A driver does what its framework offers of these, and leaves out the rest:

- `send`: a message, and the text of the answer;
- `stream`: the same with the framework's own streaming, tool calls in between;
- `progress`: a stream that has status lines too;
- `turns`: three messages of one conversation, the third of which is answered with the first two;
- `approval`: a question of the agent's, its answer, and a message after that;
- `file`: an image beside a text;
- `auth`: no answer without a token, one with it.

Texts must be exact, as a program reads them from the framework's final result, but for a line feed at the end: runs stream
one that their output does not have. `upstream.py` says what is answered.
"""

import argparse
import faulthandler
import logging
import os
import warnings
import zlib

import harness
from harness import CREDENTIALS, TOTAL, tell

__all__ = ['CREDENTIALS', 'IMAGE', 'QUESTION', 'Bridges', 'heard', 'refused', 'run', 'run_each', 'same', 'seen']

# Frameworks print to standard output; only the lines of results must get there.
LINES = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
warnings.filterwarnings('ignore')
logging.disable(logging.CRITICAL)

# What an approval is asked for with.
QUESTION = 'The agent asks for approval'


def png():
    """The smallest image: one grey pixel."""

    def chunk(kind, data):
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    header = (1).to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0])
    body = zlib.compress(bytes([0, 128]))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', body) + chunk(b'IEND', b'')


IMAGE = png()


class Bridges:
    """Where the bridge listens: `url` streams, `runs` asks and tells of its progress, `auth` wants a token."""

    def __init__(self):
        faulthandler.dump_traceback_later(TOTAL, exit=True)
        parser = argparse.ArgumentParser()
        parser.add_argument('url')
        parser.add_argument('--runs', required=True)
        parser.add_argument('--auth', required=True)
        parser.parse_args(namespace=self)


def heard(text, *prior, approval=None):
    """The answer to a text, after those others."""
    said = f'heard: {text} | prior={list(prior)}'
    return said + (f' | approval={approval}' if approval else '')


def same(left, right, what):
    """Fails with both sides named. A line feed at the end is no difference."""
    harness.same(left.removesuffix('\n') if isinstance(left, str) else left, right, what)


def seen(text):
    """The answer to a text beside the image."""
    return heard(text) + " | images=['image/png']"


async def refused(call):
    """A call that must fail."""
    try:
        answer = await call
    except Exception:
        return
    raise AssertionError(f'answered without a token: {answer!r}')


async def run(framework, operations, end=lambda: None):
    """Runs the operations, `{name: coroutine function}`, then `end`, and ends the process: a framework's threads do not
    keep it."""
    await run_each(framework, {'': operations}, end)


async def run_each(framework, ways, end=lambda: None):
    """The same for a framework that is used in several ways, `{way: operations}`, which are told apart."""
    await tell(framework, {way: list(operations.items()) for way, operations in ways.items()}, out=LINES)
    LINES.flush()
    end()
    os._exit(0)
