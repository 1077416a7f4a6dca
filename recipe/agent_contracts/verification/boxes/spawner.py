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
from contextlib import ExitStack
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
    """`base.ENTER` and the folder above `boxes`, where the prefix makes it visible."""
    orders: dict[str, Any]
    """For `enter.main`."""
    has_pid_namespace: bool = False
    """Whether the prefix is a bubblewrap command, which names the first process in the box."""


@dataclass(frozen=True)
class Spawned:
    """A box that has been entered."""

    process: subprocess.Popen[bytes]
    first: int | None
    """A descriptor of the first process of its pid namespace. When that has ended, the kernel has ended all others;
    the launcher, which is outside, may be gone a moment before."""


def spawn(launch: Launch, stderr: int | None) -> Spawned:
    """Start a box and wait until it has been entered.

    Raises:
        VerifierFailure: when it was not entered, with what the launcher said.
    """
    command = [*launch.prefix, *launch.python]
    with ExitStack() as stack:
        orders = stack.enter_context(_file(json.dumps(launch.orders).encode()))
        status, report = _pipe(stack)
        passed = [orders.fileno(), report.fileno()]
        if launch.has_pid_namespace:
            info, info_end = _pipe(stack)
            command[1:1] = ["--info-fd", str(info_end.fileno())]
            passed.append(info_end.fileno())
        process = _executor.submit(_popen, command, passed, stderr).result()
        report.close()
        message = _entered(status.fileno())
        if message == b"entered":
            return Spawned(process, _first(info.fileno()) if launch.has_pid_namespace else None)
    process.kill()
    said = process.communicate()[1] or b""
    found = (message + b" " + said).decode(errors="replace").strip()[-_MESSAGE_BYTES:]
    raise VerifierFailure("verification.box", "the box is entered", found or "its launcher ended", command[0])


def _first(info: int) -> int | None:
    try:
        return os.pidfd_open(json.loads(os.read(info, _MESSAGE_BYTES))["child-pid"])
    except ProcessLookupError:
        return None  # the command was a short one, and all has ended


def _pipe(stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    read, write = os.pipe()
    return stack.enter_context(os.fdopen(read, "rb")), stack.enter_context(os.fdopen(write, "wb"))


def _file(content: bytes) -> BinaryIO:
    """A file without a name: a command line is short and shown to every user."""
    file = os.fdopen(os.memfd_create("orders"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _popen(command: list[str], passed: list[int], stderr: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*command, *map(str, passed[:2])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={},  # LD_PRELOAD and PYTHONPATH would reach the launcher itself
        cwd="/",
        pass_fds=passed,
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
