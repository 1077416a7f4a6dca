"""Bounded reading of a box's output: by size and by time, whatever the process does with its end of the pipes."""

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
        os.set_blocking(process.stdin.fileno(), False)
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
                    is_done = _is_read(key.fd, captured.outputs[key.data], output_bytes)
                    captured.truncated |= len(captured.outputs[key.data]) > output_bytes
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
            unsent = unsent[os.write(stream.fileno(), unsent[:BLOCK_BYTES]) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            return False
    return True


def read_line(stream: IO[bytes], deadline: float, max_bytes: int) -> bytes:
    """One line of a pipe that carries an answer at a time, with its end.

    Raises:
        TimeoutError: when it is not whole by a time of `time.monotonic`.
        EOFError: when the pipe closes before, or the line is longer than `max_bytes`.
    """
    blocks: list[bytes] = []
    while not blocks or not blocks[-1].endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not _is_ready(stream.fileno(), select.POLLIN, left):
            raise TimeoutError
        blocks.append(os.read(stream.fileno(), BLOCK_BYTES))
        if not blocks[-1] or sum(map(len, blocks)) > max_bytes:
            raise EOFError
    return b"".join(blocks)


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
        return os.write(descriptor, data[:BLOCK_BYTES]) if data else 0
    except BrokenPipeError:
        return len(data)


def _is_read(descriptor: int, output: bytearray, output_bytes: int) -> bool:
    block = os.read(descriptor, min(BLOCK_BYTES, output_bytes + 1 - len(output)))
    output += block
    return not block
