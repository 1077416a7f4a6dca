"""Runs in a box and tries what its guarantees exclude. Prints what was possible: guarantee -> what was seen.

Standard library only; the caller says on stdin what there is on the host to reach for.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_ALLOWED_ENVIRONMENT = {"PATH", "HOME", "LANG", "LC_CTYPE"}
_DAEMON_SECONDS = 3.0
_BOUNDED = ("/tmp", "/dev/shm", "/dev/pts")
_CLONE_NEWUSER, _PTRACE_SEIZE, _PR_GET_NO_NEW_PRIVS = 0x10000000, 0x4206, 39


def possible(attempt: Callable[[], object]) -> bool:
    """Whether the attempt succeeds."""
    try:
        return attempt() is not False
    except (OSError, MemoryError, ValueError):
        return False


def look(host: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every guarantee that does not hold here, with what was possible."""
    secret, pid = f"{host['folder']}/secret", host["pid"]
    if possible(lambda: open(secret).close()):
        yield "fs_confined", "a file of the host was read"
        yield "tests_hidden", "a file of the host was read"
    if possible(lambda: open(f"{host['folder']}/new", "w").close()):
        yield "fs_confined", "a file was made on the host"
    if possible(lambda: os.truncate(secret, 0)):
        yield "fs_confined", "a file of the host was truncated"
    if possible(lambda: os.stat(secret)) or possible(lambda: os.utime(secret)):
        yield "fs_metadata_confined", "a file of the host was seen"
    if possible(lambda: os.stat(host["folder"])):
        yield "private_tmp", "the host's temporary folder was seen"
    for name, attempt in _sockets(host).items():
        if possible(attempt):
            yield "no_network", f"a {name} socket reached out"
    if extra := set(os.environ) & set(host["environment"]) - _ALLOWED_ENVIRONMENT:
        yield "env_clean", f"{sorted(extra)} came from the caller"
    if held := [number for number in range(3, 64) if possible(partial(os.fstat, number))]:
        yield "result_private", f"descriptors {held} were inherited"
    yield from _of_processes(host, pid)
    yield from _of_privileges(host)
    yield from _of_quotas(host["limits"])


def _sockets(host: dict[str, Any]) -> dict[str, Callable[[], object]]:
    def connect(family: int, kind: int, address: Any) -> Callable[[], object]:
        def attempt() -> None:
            with socket.socket(family, kind) as reaching:
                reaching.settimeout(1.0)
                reaching.connect(address)

        return attempt

    return {
        "TCP": connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", host["port"])),
        "UDP": connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)),
        "abstract unix": connect(socket.AF_UNIX, socket.SOCK_STREAM, host["abstract"].encode("latin-1")),
        "vsock": lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close(),
    }


def _of_processes(host: dict[str, Any], pid: int) -> Iterator[tuple[str, str]]:
    def is_the_host() -> bool:
        with open(f"/proc/{pid}/cmdline", errors="replace") as command:
            return bool(command.read() == host["command"])

    visible = possible(is_the_host)
    # Where /proc is the box's own, a process with that number is the box's own too.
    reachable = visible or not possible(lambda: os.listdir("/proc"))
    if visible or (reachable and possible(lambda: os.getsid(pid))):
        yield "pids_hidden", f"process {pid} of the host was seen"
    if reachable:
        if possible(lambda: os.kill(pid, 0)):
            yield "harness_untouchable", f"process {pid} of the host takes its signals"
        if possible(lambda: _libc.ptrace(_PTRACE_SEIZE, pid, None, None) == 0):
            yield "harness_untouchable", f"process {pid} of the host was traced"
        if possible(lambda: open(f"/proc/{pid}/environ").close()):
            yield "harness_untouchable", f"the environment of process {pid} was read"


def _of_privileges(host: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if os.getuid() in (0, host["uid"]):
        yield "independent_uid", f"it runs as user {os.getuid()}, the caller's"
    if os.getuid() == 0:
        yield "no_new_privileges", "it runs as root"
    if _libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        yield "no_new_privileges", "setuid programs give privileges"
    if _libc.unshare(_CLONE_NEWUSER) == 0:
        yield "no_new_privileges", "a nested user namespace was made"


def _of_quotas(limits: dict[str, int]) -> Iterator[tuple[str, str]]:
    if possible(lambda: bytearray(limits["memory"] + 1)):
        yield "memory_quota", f"{limits['memory'] + 1} bytes were allocated"
    if possible(lambda: _write_twice(limits["file"])):
        yield "byte_quota", f"two files of {limits['file']} bytes were written"
    if unbounded := [place for place in _mounted() if os.access(place, os.W_OK) and os.path.isdir(place)]:
        yield "byte_quota", f"{unbounded} can be written besides"
    children: list[int] = []
    while len(children) <= limits["processes"]:
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            time.sleep(_DAEMON_SECONDS)
            os._exit(0)
        children.append(child)
    if len(children) > limits["processes"]:
        yield "process_quota", f"{len(children)} processes were started"
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)


def _fork() -> int:
    """A fork, if need be when other processes of this user, who may be counted with this one, have ended."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.05)


def _mounted() -> list[str]:
    """Where a file system is mounted, but for those that have a size of their own or take no files."""
    try:
        with open("/proc/self/mounts") as mounts:
            return [place for place in (line.split()[1] for line in mounts) if place not in _BOUNDED]
    except OSError:
        return []


def _write_twice(size: int) -> None:
    with tempfile.TemporaryFile(dir="/tmp") as first, tempfile.TemporaryFile(dir="/tmp") as second:
        for file in (first, second):
            file.write(bytes(size))


def main() -> None:
    host = json.load(sys.stdin)
    refuted = dict(look(host))
    # A daemon that keeps stdout: the caller reads its end only once the daemon is gone.
    started = time.monotonic()
    if _fork() == 0:
        os.setsid()
        time.sleep(_DAEMON_SECONDS)
        refuted["no_survivors"] = f"a daemon was alive {time.monotonic() - started:.0f} s later"
    print(json.dumps(refuted), flush=True)


if __name__ == "__main__":
    main()
