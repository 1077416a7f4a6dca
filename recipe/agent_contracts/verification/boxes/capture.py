"""Bounded talk with the process in a box: by size and by time, whatever it does with its pipes.

A process can open both ends of its own pipes in /proc. So one that was ready a moment ago may be empty, or full, when
it is used: nothing here waits outside of `select`.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import subprocess
import time
from dataclasses import dataclass, field
from typing import IO

BLOCK_BYTES = 1 << 16


@dataclass
class Captured:
    """What was read, and whether a bound ended the reading."""

    outputs: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    truncated: bool = False
    timed_out: bool = False

    @property
    def stdout(self) -> bytes:
        return bytes(self.outputs["stdout"])

    @property
    def stderr(self) -> bytes:
        return bytes(self.outputs["stderr"])


def communicate(process: subprocess.Popen[bytes], stdin: bytes, seconds: float, output_bytes: int) -> Captured:
    """Feed `stdin` and read both outputs to their end, at most `output_bytes` of each, for at most `seconds`."""
    captured, deadline, unsent = Captured(), time.monotonic() + seconds, memoryview(stdin)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        while selector.get_map() and not captured.truncated:
            left = deadline - time.monotonic()
            if left <= 0:  # asked first: one byte now and then would keep a pipe ready for ever
                captured.timed_out = True
                break
            for key, _ in selector.select(left):
                if key.data == "stdin":
                    unsent = unsent[_sent(key.fd, unsent) :]
                    is_done = not unsent
                else:
                    output = captured.outputs[key.data]
                    block = _read(key.fd, min(BLOCK_BYTES, output_bytes + 1 - len(output)))
                    output += block or b""
                    captured.truncated |= len(output) > output_bytes
                    is_done = block == b""
                if is_done:
                    selector.unregister(key.fileobj)
                    close(key.fileobj)  # type: ignore[arg-type]
    if not captured.truncated and not captured.timed_out:  # it may close its outputs and go on
        captured.timed_out = not has_ended(process, deadline - time.monotonic())
    for output in captured.outputs.values():
        del output[output_bytes:]
    return captured


def has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the process, at most `seconds`."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, seconds))
    return process.poll() is not None


def is_over(process: int, seconds: float) -> bool:
    """Wait for the process of a descriptor, which is closed, at most `seconds`."""
    try:
        return _is_ready(process, select.POLLIN, seconds)
    finally:
        os.close(process)


def send(stream: IO[bytes], data: bytes, deadline: float) -> bool:
    """Write all of `data` to a pipe by a time of `time.monotonic`; False when its reader is gone or does not read."""
    os.set_blocking(stream.fileno(), False)
    unsent = memoryview(data)
    while unsent:
        left = deadline - time.monotonic()
        if left <= 0 or not _is_ready(stream.fileno(), select.POLLOUT, left):
            return False
        try:
            unsent = unsent[_written(stream.fileno(), unsent) :]
        except BrokenPipeError:
            return False
    return True


def receive(stream: IO[bytes], deadline: float) -> bytes | None:
    """Some bytes of a pipe, b"" at its end, None when there are none by a time of `time.monotonic`."""
    os.set_blocking(stream.fileno(), False)
    while (left := deadline - time.monotonic()) > 0:
        if _is_ready(stream.fileno(), select.POLLIN, left):
            block = _read(stream.fileno(), BLOCK_BYTES)
            if block is not None:
                return block
    return None


def read_line(stream: IO[bytes], deadline: float, max_bytes: int) -> bytes:
    """One line of a pipe that carries an answer at a time, with its end.

    Raises:
        TimeoutError: when it is not whole by a time of `time.monotonic`.
        EOFError: when the pipe closes before, or the line is longer than `max_bytes`.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        block = receive(stream, deadline)
        if block is None:
            raise TimeoutError
        line += block
        if not block or len(line) > max_bytes:
            raise EOFError
    return bytes(line)


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Wait for a descriptor of any number, which select(2) cannot."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


def close(stream: IO[bytes] | None) -> None:
    """Close a pipe whose other end may be gone."""
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()


def _sent(descriptor: int, data: memoryview) -> int:
    try:
        return _written(descriptor, data) if data else 0
    except BrokenPipeError:
        return len(data)


def _written(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data[:BLOCK_BYTES])
    except BlockingIOError:
        return 0


def _read(descriptor: int, size: int) -> bytes | None:
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
