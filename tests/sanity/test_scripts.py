"""Every shell script parses, stops on errors, and says what it is, on what hardware, how long and what one sees."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run"]
HEADER_LINES = {
    "hardware": re.compile(r"^# Hardware:? ", re.M),
    "time": re.compile(r"^# Time:? ", re.M),
    "what one sees": re.compile(r"^# You (will )?see:? ", re.M),
}
BROAD_KILLS = re.compile(r"\b(pkill|killall)\b|\bray stop\b|\bkill\s+(-\w+\s+)?-1\b")

each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))


def header(text: str) -> list[str]:
    """The comment lines before the first line of code."""
    lines = text.splitlines()
    end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:end]


def code(text: str) -> str:
    """The script without its comment lines."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@each_script
def test_it_parses(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@each_script
def test_it_names_its_interpreter(path: Path) -> None:
    assert path.read_text().startswith("#!/usr/bin/env bash\n")


def test_ci_can_be_executed_as_it_is() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK), "chmod +x .ci/run"


@each_script
def test_it_stops_on_the_first_error(path: Path) -> None:
    first = code(path.read_text()).strip().splitlines()[0]
    assert first == "set -euo pipefail"


@each_script
def test_its_header_tells_hardware_time_and_what_one_sees(path: Path) -> None:
    comment = "\n".join(header(path.read_text()))
    missing = [what for what, line in HEADER_LINES.items() if not line.search(comment)]
    assert not missing, f"the header of {path.relative_to(ROOT)} lacks {missing}"


@each_script
def test_it_ends_only_what_it_started(path: Path) -> None:
    found = BROAD_KILLS.findall(code(path.read_text()))
    assert not found, f"{path.relative_to(ROOT)} ends processes that it may not have started"


def test_check_tells_stale_from_fresh(tmp_path: Path) -> None:
    missing = subprocess.run(
        ["bash", str(ROOT / "scripts/setup.sh"), "--check"],
        env={**os.environ, "VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert missing.returncode == 1
    assert "missing or stale" in missing.stderr
    assert not (tmp_path / "venv").exists()


def test_setup_names_the_python_that_it_lacks(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/setup.sh")],
        env={**os.environ, "VENV": str(tmp_path / "venv"), "PYTHON": "python-that-is-not-there"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "python-that-is-not-there not found" in done.stderr
    assert not (tmp_path / "venv").exists()
