"""Runs the conformance corpus of A2A (ACTS) against servers and a client.

    acts.py CORPUS OUT --server URL [--server URL --token TOKEN --token TOKEN] --client PROGRAM

The bindings are those of the first server's card. A server with tokens knows a caller for each; operations use the first.
OUT gets `{row: {seconds, outcome: [{test, said}]}}`, with a row for every level of every binding. The exit code is 0 also if tests
failed: `cargo xtask acts` judges.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import httpx
from harness import Webhooks

import clients
import corpus
import runner
from bindings import VERSION, of_card
from special import Special

NAMES = {'jsonrpc': 'JSON-RPC', 'rest': 'HTTP+JSON', 'grpc': 'gRPC', 'client': 'client'}
OUTCOMES = ('passed', 'failed', 'error', 'skipped', 'xfailed', 'xpassed')


class Server(argparse.Action):
    """Collects `--server` and the tokens that follow it."""

    def __call__(self, parser, namespace, value, option_string=None):
        servers = namespace.servers
        if option_string == '--server':
            servers.append((value, []))
        else:
            servers[-1][1].append(value)


async def open_server(url, tokens, http):
    card = (await http.get(f'{url}/.well-known/agent-card.json', headers=VERSION)).raise_for_status().json()
    headers = {'Authorization': f'Bearer {tokens[0]}'} if tokens else {}
    return runner.Server(url, card, of_card(card, http, headers), tokens)


async def main(args):
    tests = corpus.read(args.corpus)
    report = {}

    def reporter(binding):
        levels = {level: {'seconds': 0.0, **{outcome: [] for outcome in OUTCOMES}} for level in corpus.LEVELS}
        report.update({f'{NAMES[binding]}, {level}': outcomes for level, outcomes in levels.items()})
        started = time.monotonic()

        def tell(test, outcome, said):
            nonlocal started
            row, seconds, started = levels[test['level']], time.monotonic() - started, time.monotonic()
            row[outcome].append({'test': test['id'], 'said': said})
            row['seconds'] += seconds
            print(
                f'{outcome:7}  {NAMES[binding]:9}  {test["id"]:16}  {seconds:5.1f} s  {said[:200]}',
                flush=True,
            )

        return tell

    async with httpx.AsyncClient() as http:
        servers = [await open_server(url, tokens, http) for url, tokens in args.servers]
        special, webhooks = await Special.prepare(servers, http), Webhooks()
        for binding in servers[0].bindings:
            await runner.run(tests, binding, servers, http, webhooks, special, reporter(binding))
    await clients.run(tests, args.client, reporter('client'))
    # A binding need not have tests of every level.
    report = {row: found for row, found in report.items() if any(found[outcome] for outcome in OUTCOMES)}
    args.out.write_text(json.dumps(report))


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('corpus', type=Path)
    parser.add_argument('out', type=Path)
    parser.add_argument('--server', '--token', action=Server, dest='_', default=None)
    parser.add_argument('--client', required=True)
    parser.set_defaults(servers=[])
    try:
        asyncio.run(main(parser.parse_args()))
    except corpus.Malformed as error:
        sys.exit(f'acts: {error}')
