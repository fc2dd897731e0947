"""Runs an agent on a free port of loopback, and prints its address when it can be called."""

import socket

import uvicorn


def listen():
    """A socket that listens already, and its port."""
    listener = socket.create_server(('127.0.0.1', 0))
    return listener, listener.getsockname()[1]


def serve(app, listener):
    """Serves until the process is ended."""
    port = listener.getsockname()[1]
    print(f'http://127.0.0.1:{port}', flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level='warning'))
    server.run(sockets=[listener])
