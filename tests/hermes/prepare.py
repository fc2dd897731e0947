#!/usr/bin/env python3
"""Makes the virtual environment with the real hermes-agent and the tests' platform plugin: `prepare.py FOLDER`.

The last line on standard output is the path of the `hermes` program; progress goes to standard error. An environment that
fits is reused; another Python, other requirements or another plugin get an environment of their own. If several processes
run this at once, one works and the others wait. A file marks an environment as complete, so the remains of an interrupted
run are never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The Python versions that hermes-agent 0.19 supports.
OLDEST, NEWEST = (3, 11), (3, 13)


def say(text: str) -> None:
    print(f"hermes: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> None:
    say(text)
    sys.exit(1)


def python() -> str:
    """An interpreter that hermes-agent runs on."""
    names = ["python3", *(f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)), sys.executable]
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        version = subprocess.run(
            [found, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
        ).stdout.split()
        if len(version) == 2 and OLDEST <= (int(version[0]), int(version[1])) <= NEWEST:
            return found
    fail(f"needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]} on PATH, as python3 or python3.{NEWEST[1]}; install one")


def fingerprint(interpreter: str) -> str:
    """Everything that the environment is made from."""
    digest = hashlib.sha256()
    for file in [HERE / "requirements.txt", *sorted((HERE / "plugin").glob("*.*"))]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    version = subprocess.run([interpreter, "--version"], capture_output=True, text=True).stdout
    digest.update(f"{os.path.realpath(interpreter)} {version}".encode())
    return digest.hexdigest()


def install(interpreter: str, venv: Path) -> None:
    start = time.monotonic()
    say(f"making {venv} with hermes-agent from the package index; this takes a minute or more, once")
    made = subprocess.run([interpreter, "-m", "venv", "--clear", str(venv)], stdout=sys.stderr)
    if made.returncode != 0:
        fail(f"`{interpreter} -m venv` failed; on Debian install python3-venv")
    pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
    for what in (["--requirement", str(HERE / "requirements.txt")], [str(HERE / "plugin")]):
        installing = subprocess.Popen([*pip, *what], stdout=subprocess.PIPE, text=True)
        for line in installing.stdout:
            # One line for each package shows the progress. Errors are on standard error.
            if line.startswith("Collecting "):
                say(line.split(" (from ")[0].strip())
        if installing.wait() != 0:
            fail("pip failed, see above; a package index must be reachable the first time")
    say(f"installed in {time.monotonic() - start:.0f} s")


def sweep(folder: Path) -> None:
    """Removes the homes of tests that have ended. A shared gateway lives until its process ends, and then nothing cleans up
    after it."""
    for home in folder.glob("home-*-*"):
        try:
            os.kill(int(home.name.split("-")[1]), 0)
        except (ValueError, ProcessLookupError):
            shutil.rmtree(home, ignore_errors=True)
        except PermissionError:
            pass  # It is alive, and another user's.


def main() -> None:
    if len(sys.argv) != 2:
        fail("usage: prepare.py FOLDER")
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    interpreter = python()
    wanted = fingerprint(interpreter)
    # The name contains the fingerprint, so that different worktrees can share a target folder.
    venv = folder / f"venv-{wanted[:12]}"
    done = venv / "complete"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(folder)
        if not done.exists():
            install(interpreter, venv)
            done.touch()
    print(venv / "bin/hermes")


main()
