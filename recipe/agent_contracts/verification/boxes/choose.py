"""Which box this machine can give: each backend is tried with a real box, and only what held is relied on.

`open_box` takes the strongest backend that gives everything required, or raises `GuaranteeUnavailable` with what the
probe saw. It never settles for less unless the caller names the guarantee that may be missing.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recipe.agent_contracts.errors import GuaranteeUnavailable, VerifierFailure
from recipe.agent_contracts.verification.boxes.base import PYTHON, Box, Limits, Running
from recipe.agent_contracts.verification.boxes.bubblewrap import Bubblewrap
from recipe.agent_contracts.verification.boxes.bubblewrap_uid import BubblewrapUid
from recipe.agent_contracts.verification.boxes.canonical import Canonical
from recipe.agent_contracts.verification.boxes.guarantee import REQUIRED_BY_DEFAULT, Guarantee
from recipe.agent_contracts.verification.boxes.landlock import Landlock

BACKENDS: tuple[type[Box], ...] = (BubblewrapUid, Bubblewrap, Landlock, Canonical)
"""Strongest first."""
_PROBE = Path(__file__).with_name("probe.py")
_LIMITS = Limits(seconds=20.0, memory_bytes=512 << 20, processes=12, file_bytes=4 << 20)


@dataclass(frozen=True)
class Probed:
    """What one backend gave when it was tried."""

    name: str
    held: frozenset[Guarantee]
    """The claims that nothing refuted."""
    seen: dict[Guarantee, str]
    """Of each other guarantee, what the probe saw, or that the backend does not claim it."""


def open_box(
    require: frozenset[Guarantee] = REQUIRED_BY_DEFAULT, allow_weaker: frozenset[Guarantee] = frozenset()
) -> Box:
    """The strongest box that gives what is required. Its `guarantees` are those that held on this machine.

    Args:
        require: What the caller relies on.
        allow_weaker: Which of these may be missing; record the box's `guarantees` with every verdict then.

    Raises:
        GuaranteeUnavailable: when no backend gives them all.
    """
    report = []
    for backend in BACKENDS:
        probed = probe(backend)
        missing = require - probed.held
        if missing <= allow_weaker:
            box = backend()
            box.guarantees = probed.held
            return box
        report += [
            f"{probed.name} lacks {lacking}: {probed.seen[lacking]}" for lacking in sorted(missing - allow_weaker)
        ]
    remedy = "docs/sandbox.md says what each backend needs; to do without a guarantee, name it in allow_weaker"
    raise GuaranteeUnavailable("verification.box", ", ".join(sorted(require)), "; ".join(report), "", remedy)


@functools.cache
def probe(backend: type[Box]) -> Probed:
    """Try a backend on this machine, once a process."""
    box = backend()
    try:
        refuted = _refuted(box)
    except VerifierFailure as failure:
        return Probed(box.name, frozenset(), dict.fromkeys(Guarantee, str(failure.found)))
    seen = {guarantee: "not given by this backend" for guarantee in Guarantee if guarantee not in box.guarantees}
    seen |= {guarantee: refuted[guarantee] for guarantee in box.guarantees if guarantee in refuted}
    return Probed(box.name, box.guarantees - seen.keys(), seen)


def _refuted(box: Box) -> dict[Guarantee, str]:
    """What was possible in the box that its guarantees exclude."""
    with tempfile.TemporaryDirectory(prefix="box-probe-") as name, socket.socket() as tcp, _abstract() as abstract:
        folder = Path(name)
        folder.chmod(0o777)  # so that a refusal is the box's, not another user's lack of rights
        (folder / "secret").write_text("secret")
        (folder / "secret").chmod(0o666)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        host = {
            "folder": name,
            "port": tcp.getsockname()[1],
            "abstract": abstract.getsockname().decode("latin-1"),
            "pid": os.getpid(),
            "uid": os.getuid(),
            "command": Path("/proc/self/cmdline").read_text(errors="replace"),
            "environment": sorted(os.environ),
            "limits": {"memory": _LIMITS.memory_bytes, "processes": _LIMITS.processes, "file": _LIMITS.file_bytes},
        }
        with box.start([*PYTHON, "probe.py"], {"probe.py": _PROBE.read_bytes()}, _LIMITS) as running:
            return _answer(running, host)


def _answer(running: Running, host: dict[str, object]) -> dict[Guarantee, str]:
    try:
        out, _ = running.process.communicate(json.dumps(host).encode(), timeout=_LIMITS.seconds)
    except subprocess.TimeoutExpired as error:
        raise VerifierFailure("verification.box", "the probe's answer", f"none in {_LIMITS.seconds} s") from error
    try:
        answer = json.loads(out.splitlines()[-1])  # a daemon that survived adds a line
        return {Guarantee(name): str(seen) for name, seen in answer.items()}
    except (ValueError, IndexError) as error:
        found = f"the probe said {out[-200:]!r} and ended with {running.poll()}"
        raise VerifierFailure("verification.box", "the probe's answer", found) from error


def _abstract() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # the kernel picks an abstract name
    listener.listen()
    return listener
