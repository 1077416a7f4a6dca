"""Runs every attack against one backend, as the user that this process is, and prints what came of each as JSON.

Run as `python -m tests.contracts.attacks.harness BACKEND [locked] [attack] [grade]`. `locked` first takes from this
process what an unprivileged container lacks: unshare, mount, setns, chroot, pivot_root. `attack` runs the attacks, with
an honest scoring before and after; `grade` the dishonest artifacts, with an honest scoring after each.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from recipe.agent_contracts.transition.envs.terminal import generator
from recipe.agent_contracts.verification import two_box
from recipe.agent_contracts.verification.boxes import choose, interpreter, kernel
from recipe.agent_contracts.verification.boxes.base import PYTHON, Box, Finished, Limits
from recipe.agent_contracts.verification.boxes.canonical import Canonical
from tests.contracts.attacks.artifacts import ARTIFACTS, CASES, ENDED_BY_A_CASE, HONEST, SLOW
from tests.contracts.attacks.attacks import ATTACKS, PRELUDE, Attack

LIMITS = Limits(seconds=10.0, memory_bytes=512 << 20, processes=10, file_bytes=1 << 20, output_bytes=1 << 16)
BRIEF = replace(LIMITS, seconds=1.0)
"""For what waits its time limit out."""
LONG_SECONDS = 8.0


@contextmanager
def things_to_reach_for() -> Iterator[dict[str, Any]]:
    """What a program in a box must not reach, all of it open to this process's own user."""
    with (
        tempfile.TemporaryDirectory(prefix="attack-") as folder,
        tempfile.NamedTemporaryFile(dir="/tmp") as tmp_file,
        tempfile.NamedTemporaryFile(dir="/dev/shm") as shm_file,
        socket.socket() as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as unix,
        subprocess.Popen(["sleep", "600"], env={"ATTACK_SECRET": "x"}) as harness,
    ):
        os.chmod(folder, 0o777)
        for path in (tmp_file.name, shm_file.name):
            os.chmod(path, 0o666)
        secret = Path(folder) / "secret"
        secret.write_text("expected values")
        secret.chmod(0o666)
        tcp.bind(("127.0.0.1", 0))
        abstract.bind("")
        unix.bind(f"{folder}/socket")
        for listener in (tcp, abstract, unix):
            listener.listen()
        held = os.open(folder, os.O_RDONLY)
        os.set_inheritable(held, True)  # as a Ray worker holds several
        libc = ctypes.CDLL(None)
        shm_id = libc.shmget(0, 4096, 0o1666)
        try:
            yield {
                "folder": folder,
                "secret": str(secret),
                "source": generator.__file__,
                "package": _a_package_file(),
                "tmp_file": tmp_file.name,
                "shm_file": shm_file.name,
                "port": tcp.getsockname()[1],
                "abstract": abstract.getsockname().decode("latin-1"),
                "unix": f"{folder}/socket",
                "shm_id": shm_id,
                "pid": harness.pid,
                "processes": LIMITS.processes,
                "memory": LIMITS.memory_bytes,
                "file": LIMITS.file_bytes,
            }
        finally:
            harness.kill()
            os.close(held)
            libc.shmctl(shm_id, 0, None)


class Unconfined(Canonical):
    """No box, although agent code runs: what the attacks do when nothing stops them."""

    run = Box.run


def attempt(box: Box, attack: Attack, host: dict[str, Any]) -> tuple[bool, str]:
    """Whether an attack succeeds, and what was seen."""
    token = f"{600 + time.monotonic_ns() % 10**9 / 10**9:.9f}"  # an unmistakable argument of all that it starts
    before = _fingerprint(host)
    program = PRELUDE + attack.program + "\nprint('got through')"
    files = {**attack.files, "main.py": program.encode()}
    started = time.monotonic()
    limits = BRIEF if attack.succeeded_if == "ran_long" else LIMITS
    done = box.run(
        [*PYTHON, "main.py", token],
        files,
        json.dumps({**host, "token": token}).encode(),
        limits,
        writable=attack.writable,
    )
    took = time.monotonic() - started
    seen = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing said"])[-1][:200]
    if _fingerprint(host) != before:
        return True, "the host was changed"
    return _has_succeeded(attack, done, took, token), seen


def _has_succeeded(attack: Attack, done: Finished, took: float, token: str) -> bool:
    match attack.succeeded_if:
        case "completed":
            return b"got through" in done.stdout
        case "ran_long":
            return took > LONG_SECONDS or not (done.timed_out or done.truncated)
        case "late_process":
            return _ended(token)
        case "holds_output":
            return done.timed_out
        case "host_changed":
            return any(Path(tempfile.gettempdir()).glob("box-*"))
        case "stderr":
            return b"ld.so" in done.stderr


def _fingerprint(host: dict[str, Any]) -> object:
    try:
        status = os.stat(host["secret"])
    except FileNotFoundError:
        return None
    return status.st_mode, status.st_mtime_ns, status.st_size, sorted(os.listdir(host["folder"])), _attributes(host)


def _attributes(host: dict[str, Any]) -> list[str]:
    try:
        return os.listxattr(host["secret"])
    except OSError:  # not every file system has them
        return []


def _ended(token: str) -> bool:
    """End the processes that have the token as an argument, until there is none; whether there was one."""
    found = False
    while alive := _with_argument(token):
        found = True
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return found


def _with_argument(token: str) -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if token in (process / "cmdline").read_text(errors="replace"):
                    found.append(int(process.name))
    return found


def _a_package_file() -> str:
    files = (file for place in interpreter.installed_packages() for file in place.rglob("*.py"))
    return str(next(files, generator.__file__))


def grade(box: Box) -> dict[str, list[object]]:
    """How many hidden cases each dishonest artifact passes, and an honest one after it."""
    results: dict[str, list[object]] = {}
    for name, artifact in ARTIFACTS.items():
        cases = CASES[:1] if name in ENDED_BY_A_CASE else CASES
        judged = judge(box, artifact, BRIEF if name in SLOW else LIMITS, cases)
        results[name] = [judged.passed, judged.failures, judge(box, HONEST).passed]
    return results


def judge(
    box: Box, artifact: dict[str, bytes], limits: Limits = LIMITS, cases: Sequence[two_box.Case] = CASES
) -> two_box.Judgement:
    """How an artifact does on the hidden cases."""
    return two_box.TwoBoxGrader("solution", "f", limits, box).judge(artifact, cases)


def lock() -> None:
    """Take from this process and its children what an unprivileged container does not have."""
    denied = ("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "bpf", "open_by_handle_at")
    kernel.seccomp({name: kernel.EVERYWHERE[name] for name in denied})


def main() -> None:
    name = sys.argv[1]
    if "locked" in sys.argv:
        lock()
    tempfile.tempdir = tempfile.mkdtemp(prefix="attacks-")
    os.chmod(tempfile.tempdir, 0o711)
    os.environ["ATTACK_SECRET"] = "x"
    os.environ["LD_PRELOAD"] = "/nonexistent/evil.so"
    backend = next(backend for backend in choose.BACKENDS if backend.name == name)
    probed = choose.probe(backend)
    result: dict[str, Any] = {"held": sorted(probed.held), "seen": probed.seen, "attacks": {}, "artifacts": {}}
    result["chosen"] = choose.open_box().name if probed.held else None
    box = Unconfined() if backend is Canonical else backend()
    if probed.held and "attack" in sys.argv:
        result["honest"] = [judge(box, HONEST).passed] if box.name != Canonical.name else []
        for attack in ATTACKS:
            if backend is Canonical and attack.name == "kill_the_supervisor":
                continue  # with no supervisor in between, it is this process that would be killed
            with things_to_reach_for() as host:
                result["attacks"][attack.name] = attempt(box, attack, host)
        result["honest"] += [judge(box, HONEST).passed] if box.name != Canonical.name else []
    if probed.held and "grade" in sys.argv:
        result["artifacts"] = grade(box)
    os.rmdir(tempfile.tempdir)  # nothing was left behind
    print(json.dumps(result))


if __name__ == "__main__":
    main()
