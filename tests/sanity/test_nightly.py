"""nightly.sh: a failing stage does not stop the next ones, and a second start repeats only what failed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script beside stand-ins for what its stages run; each writes its arguments to `ran`."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "nightly.sh", tmp_path / "scripts")
    for path in ("scripts/setup.sh", "scripts/smoke.sh", "scripts/run_controls.sh", "venv/bin/python"):
        fails = "[[ ! -e broken ]]" if path.endswith("smoke.sh") else "true"
        (tmp_path / path).write_text(f'#!/usr/bin/env bash\necho "{path} $*" >>ran\n{fails}\n')
        (tmp_path / path).chmod(0o755)
    return tmp_path


def nightly(checkout: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "VENV": "venv", "DATE": "2026-11-30"}
    command = ["bash", "scripts/nightly.sh"]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def test_a_second_start_repeats_only_the_stage_that_failed(checkout: Path) -> None:
    (checkout / "broken").touch()
    first = nightly(checkout)
    assert first.returncode == 1
    assert "nightly: failed: smoke" in first.stderr
    stages = [line for line in first.stdout.splitlines() if "expected:" in line]
    assert len(stages) == len((checkout / "ran").read_text().splitlines()), "each stage says how long it should take"

    (checkout / "broken").unlink()
    (checkout / "ran").unlink()
    second = nightly(checkout)
    assert second.returncode == 0, second.stderr
    assert "every stage of 2026-11-30 passed" in second.stdout
    assert (checkout / "ran").read_text().split()[0] == "scripts/smoke.sh"
    assert len((checkout / "ran").read_text().splitlines()) == 1
