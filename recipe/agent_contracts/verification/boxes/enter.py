"""The last trusted code of a box: run by path inside it, confines itself as ordered, then becomes the command.

Standard library only, started with -I -S. From one descriptor it reads its orders, and carries them out in the order of
`_confine`; on another, a pipe that the start of the command closes, it reports `entered`, or why it could not. Where
there is no pid namespace it stays behind as a supervisor that adopts every orphan and ends all of them before it ends.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from . import kernel  # relative: in a box this folder is all there is of the package

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        orders = json.load(file)
    report = int(sys.argv[2])
    os.set_inheritable(report, False)
    try:
        if orders["supervise"]:
            _supervise(report)
        _confine(orders)
        os.write(report, b"entered")
        os.execve(orders["argv"][0], orders["argv"], ENVIRONMENT)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.write(report, f": {type(error).__name__}: {error}".encode())
        os._exit(126)


def _confine(orders: dict[str, Any]) -> None:
    for name, bound in orders["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (bound, bound))
    if orders["uid"] is not None:
        os.setgroups([])
        os.setresgid(orders["uid"], orders["uid"], orders["uid"])
        os.setresuid(orders["uid"], orders["uid"], orders["uid"])
    if orders["copy"]:
        _copy(orders["copy"], orders["cwd"])
    os.chdir(orders["cwd"])
    os.umask(0o022)
    if orders["landlock"]:
        kernel.landlock(**orders["landlock"])
    if orders["seccomp"]:
        shared = kernel.WITHOUT_NAMESPACES if orders["landlock"] else {}
        kernel.seccomp({**kernel.EVERYWHERE, **shared}, own_limits_only=bool(shared))


def _copy(source: str, target: str) -> None:
    for place, folders, files in os.walk(source):
        below = target + place.removeprefix(source)
        for name in folders:
            os.mkdir(f"{below}/{name}")
        for name in files:
            with open(f"{place}/{name}", "rb") as content, open(f"{below}/{name}", "wb") as copy:
                copy.write(content.read())


def _supervise(report: int) -> None:
    """Return in a child that becomes the command; the parent ends with its status once nothing of it is alive."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    kernel.keep_signals_in()
    _check_signals_stay_in()
    signal.signal(signal.SIGTERM, lambda *_: _end_all(128 + signal.SIGTERM))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    os.close(report)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end_all(status if status >= 0 else 128 - status)


def _check_signals_stay_in() -> None:
    """Raise where `_end_all` would end others."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return
    raise OSError(errno.EPERM, "signals of the supervisor reach its caller")


def _end_all(status: int) -> NoReturn:
    """Kill and reap every descendant, then end; a second signal may enter it again.

    The kernel kills all that this process may signal at once, so no fork escapes.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)  # as their subreaper it inherits every orphan
    os._exit(status)
