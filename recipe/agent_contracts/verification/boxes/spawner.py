"""Starts boxes from one thread that lives as long as the interpreter, and waits until the box has been entered.

A box dies with its parent by a signal that the kernel ties to the *thread* that started it: started by a pool thread,
it would be killed when that thread ends. Nothing runs between fork and exec here, so a caller may
have many threads.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

from recipe.agent_contracts.errors import VerifierFailure

ENTRY_SECONDS = 20.0
"""Time for a box to be made and entered on a machine under load; it takes some 50 ms on an idle one."""
_MESSAGE_BYTES = 2000
_executor = ThreadPoolExecutor(1, "box-spawner")


@dataclass(frozen=True)
class Launch:
    """How one box is started: a prefix that makes it, then Python with `enter.py`, then what that shall do."""

    prefix: tuple[str, ...]
    python: tuple[str, ...]
    """The interpreter with its options, and the path of `enter.py` where the prefix makes it visible."""
    orders: dict[str, Any]
    """For `enter.main`."""


def spawn(launch: Launch, stderr: int | None) -> subprocess.Popen[bytes]:
    """Start a box and wait until it has been entered.

    Raises:
        VerifierFailure: when it was not entered, with what the launcher said.
    """
    command = [*launch.prefix, *launch.python]
    with _file(json.dumps(launch.orders).encode()) as orders:
        status, report = os.pipe()
        try:
            try:
                process = _executor.submit(_popen, command, (orders.fileno(), report), stderr).result()
            finally:
                os.close(report)
            message = _entered(status)
        finally:
            os.close(status)
    if message != b"entered":
        process.kill()
        said = process.communicate()[1] or b""
        found = (message + b" " + said).decode(errors="replace").strip()[-_MESSAGE_BYTES:]
        raise VerifierFailure("verification.box", "the box is entered", found or "its launcher ended", command[0])
    return process


def _file(content: bytes) -> BinaryIO:
    """A file without a name: a command line is short and shown to every user."""
    file = os.fdopen(os.memfd_create("orders"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _popen(command: list[str], descriptors: tuple[int, int], stderr: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command, *map(str, descriptors)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={},  # LD_PRELOAD and PYTHONPATH would reach the launcher itself
        cwd="/",
        pass_fds=descriptors,
        start_new_session=True,
    )


def _entered(status: int) -> bytes:
    """What was reported until the pipe closed, which the start of the command does."""
    message, deadline = b"", time.monotonic() + ENTRY_SECONDS
    while select.select([status], [], [], max(0.0, deadline - time.monotonic()))[0]:
        block = os.read(status, _MESSAGE_BYTES)
        if not block:
            return message
        message += block
    return message + f" not entered within {ENTRY_SECONDS:g} s".encode()


def _renew() -> None:
    global _executor
    _executor = ThreadPoolExecutor(1, "box-spawner")


os.register_at_fork(after_in_child=_renew)  # a fork has no threads
