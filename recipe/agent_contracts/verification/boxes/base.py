"""The interface of a box: run something once, or start a worker, under limits and without inherited state.

Every backend starts its processes from one thread that lives as long as the interpreter, with an empty environment and
every descriptor closed, and enters the box through `enter.py`, which reports on a pipe whether the box was entered. So
"the box could not be made" (a `VerifierFailure`) never looks like "the code in it failed" (a return code).
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from recipe.agent_contracts.errors import VerifierFailure
from recipe.agent_contracts.verification.boxes import capture, staging
from recipe.agent_contracts.verification.boxes.guarantee import Guarantee
from recipe.agent_contracts.verification.boxes.interpreter import EXECUTABLE
from recipe.agent_contracts.verification.boxes.spawner import Launch, spawn

PYTHON = (EXECUTABLE, "-I", "-S", "-B", "-X", "utf8")
"""How Python starts in a box: no site, no user folder, no working folder on the path, no bytecode written."""
PYTHON_FROM_SOURCE = (*PYTHON, "-X", "pycache_prefix=/nonexistent")
"""The same without reading cached bytecode either, which an agent can forge; slower, as the library is compiled too."""
ENTER = (*PYTHON, "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); from boxes.enter import main; main()")
"""How the launcher starts; the folder above this package follows, as the box sees it."""
END_SECONDS = 20.0
"""For the kernel to end all processes of a box, which takes some milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one box may use."""

    seconds: float = 10.0
    """Wall clock of one `run`. A started worker is timed by whoever asks it."""
    memory_bytes: int = 1 << 30
    """Address space of each process."""
    processes: int = 32
    """Processes and threads at a time."""
    file_bytes: int = 16 << 20
    """Size of one file, and of the private file systems where the backend has them."""
    output_bytes: int = 1 << 20
    """Of stdout, and of stderr, in one `run`; the box is ended when it writes more."""
    open_files: int = 64
    """Descriptors of each process."""


@dataclass(frozen=True)
class Finished:
    """How a `run` ended."""

    returncode: int
    """The exit status; negative for a signal, as far as the backend can tell one."""
    stdout: bytes
    stderr: bytes
    truncated: bool
    """It wrote more than it may, and was ended."""
    timed_out: bool
    """It was still running at its limit, and was ended."""


@dataclass
class Running:
    """A box that has been entered and is running."""

    process: subprocess.Popen[bytes]
    grace_seconds: float
    """Time that its supervisor needs to end everything after SIGTERM; 0 where SIGKILL takes all along."""
    folder: staging.Folder
    """Its files on the host, removed at the end."""
    first: int | None
    """`Spawned.first`."""

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def poll(self) -> int | None:
        """The exit status, or None while it runs."""
        return self.process.poll()

    def end(self) -> int:
        """End everything in the box, wait until nothing of it is alive and remove its files. May be called again.

        Raises:
            VerifierFailure: when something of it is still alive some seconds later.
        """
        is_over = True
        if self.process.poll() is None and self.grace_seconds:
            self.process.terminate()
            is_over = capture.has_ended(self.process, self.grace_seconds)
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            capture.close(stream)
        first, self.first = self.first, None
        is_over &= first is None or capture.is_over(first, END_SECONDS)
        self.folder.remove()
        if not is_over:
            raise VerifierFailure("verification.box", Guarantee.NO_SURVIVORS, "processes some seconds later")
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Box(ABC):
    """A backend. Stateless: each `run` and each `start` is a new box that shares nothing with another."""

    name: str
    """The backend's name, as it is recorded with a verdict."""
    guarantees: frozenset[Guarantee]
    """What it claims; `choose.open_box` gives a box whose claims held when they were tried."""
    grace_seconds = 0.0

    def run(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits | None = None,
        *,
        writable: bool = False,
        readable: Sequence[Path] = (),
    ) -> Finished:
        """Run a command to its end.

        Args:
            argv: The command; `PYTHON` is how Python starts. Relative paths are in the folder of `files`.
            files: Content by relative path, put into the working folder.
            stdin: Its whole input.
            limits: Default: `Limits()`.
            writable: The working folder is a private writable copy; else nothing in it can be changed.
            readable: Files and folders of the host that it may read, at their own paths.

        Raises:
            VerifierFailure: when the box could not be entered.
            GuaranteeUnavailable: by a backend in which no agent code may run.
        """
        limits = limits or Limits()
        with self._open(argv, files or {}, limits, writable, readable, True, subprocess.PIPE) as running:
            ended = capture.communicate(running.process, stdin, limits.seconds, limits.output_bytes)
            status = running.end()
        return Finished(status, ended.stdout, ended.stderr, ended.truncated, ended.timed_out)

    def start(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
        *,
        readable: Sequence[Path] = (),
        keep_stderr: bool = True,
    ) -> Running:
        """Start a worker that is spoken to over its stdin and stdout.

        Args and errors: as for `run`, and `keep_stderr`: whether its stderr is the caller's, or nobody's. The caller
        times the worker and calls `end`.
        """
        stderr = None if keep_stderr else subprocess.DEVNULL
        return self._open(argv, files or {}, limits or Limits(), False, readable, False, stderr)

    def _open(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes],
        limits: Limits,
        writable: bool,
        readable: Sequence[Path],
        one_shot: bool,
        stderr: int | None,
    ) -> Running:
        uid = self.new_uid()
        folder = staging.Folder.holding(files, owner=uid if writable else None)
        try:
            launch = self.launch(tuple(argv), folder.path, limits, writable, tuple(readable), one_shot, uid)
            spawned = spawn(launch, stderr)
        except BaseException:
            folder.remove()
            raise
        return Running(spawned.process, self.grace_seconds, folder, spawned.first)

    def new_uid(self) -> int | None:
        """The user of the next box, or None for the caller's own."""
        return None

    @abstractmethod
    def launch(
        self,
        argv: tuple[str, ...],
        folder: Path,
        limits: Limits,
        writable: bool,
        readable: tuple[Path, ...],
        one_shot: bool,
        uid: int | None,
    ) -> Launch:
        """The command line that makes this backend's box, and what `enter.py` does in it."""


def rlimits(limits: Limits, one_shot: bool) -> dict[str, int]:
    """The rlimits of a box by their name in `resource`. Only a one-shot box has an end to its CPU time."""
    bounds = {
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CORE": 0,
    }
    return bounds | ({"RLIMIT_CPU": int(limits.seconds) + 2} if one_shot else {})


def is_root() -> bool:
    """Whether this process runs as root."""
    return os.geteuid() == 0
