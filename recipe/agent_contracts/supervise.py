"""Runs a training as a child: its flood goes to a log file, the screen shows progress, Ctrl-C ends all of it.

The supervisor adopts orphans (Linux's child subreaper), so that Ray's and the engine's processes cannot outlive the
run, and adds up the CPU time of the whole process tree.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec
import psutil
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.5
_GRACE_SECONDS = 20.0


class Finished(msgspec.Struct, frozen=True):
    """How a supervised run ended."""

    exit_code: int
    wall_seconds: float
    cpu_seconds: float
    """User and system time of every process of the tree, sampled twice a second (short-lived helpers may be missed)."""


def run_supervised(command: list[str], log: Path, metrics: Path, total_steps: int) -> Finished:
    """Run a command to its end with a progress bar over the steps in its metrics file.

    Args:
        command: Program and arguments; stdout and stderr go to `log`.
        metrics: JSONL that the run appends a `{"step": n, "data": {...}}` line to for each step.
        total_steps: Length of the bar.

    Returns:
        Exit code (130 after Ctrl-C) and times. No process of the tree is left.
    """
    _adopt_orphans()
    started = time.monotonic()
    cpu: dict[tuple[int, float], float] = {}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream, _progress() as bar:
        task = bar.add_task("starting", total=total_steps, note="")
        child = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            with _Tail(metrics) as steps:
                while child.poll() is None:
                    time.sleep(_POLL_SECONDS)
                    _add_cpu_times(cpu)
                    for step, data in steps:
                        bar.update(task, description="training", completed=step, note=_note(data))
            exit_code = child.returncode
        except KeyboardInterrupt:
            bar.update(task, description="stopping")
            _interrupt(child)
            exit_code = 130
        finally:
            _end_descendants()
    return Finished(exit_code, time.monotonic() - started, sum(cpu.values()))


def log_tail(log: Path, num_lines: int = 25) -> str:
    """The last lines of a log, for an error message."""
    with log.open(errors="replace") as stream:
        return "".join(stream.readlines()[-num_lines:])


class _Tail:
    """Yields the (step, data) lines that were appended since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: IO[str] | None = None
        self._partial = ""

    def __enter__(self) -> _Tail:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        if self._stream is None:
            if not self._path.exists():
                return
            self._stream = self._path.open()
        for line in self._stream:
            self._partial += line
            if self._partial.endswith("\n"):
                entry = json.loads(self._partial)
                self._partial = ""
                yield entry["step"], entry["data"]


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        # A log of a redirected run gets a line now and then instead of a redrawn bar.
        refresh_per_second=2 if sys.stdout.isatty() else 0.1,
    )


def _note(data: Mapping[str, float]) -> str:
    if "critic/score/mean" not in data:
        return "held-out evaluation"
    return f"reward {data['critic/score/mean']:.2f}  {data.get('timing_s/step', 0):.1f} s a step"


def _adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


def _add_cpu_times(cpu: dict[tuple[int, float], float]) -> None:
    for process in _descendants():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            cpu[process.pid, process.create_time()] = times.user + times.system


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Let the run shut Ray down by itself; past the grace the caller kills what is left."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        child.wait(_GRACE_SECONDS)


def _end_descendants() -> None:
    """Kill what the run left, until nothing is: a killed process's children become ours in their turn."""
    while left := _descendants():
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)
