"""The benchmarks run, small: what they print on a full size is in the docs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_transition_benchmark_measures_every_operation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/transition.py", "--files", "3", "--folder", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\w+) +([\d.]+) +(\d+) +(\d+)", done.stdout, re.M)
    assert [name for name, *_ in rows] == ["open", "reset", "edit", "snapshot", "restore", "fork"]
    assert all(float(microseconds) > 0 for _, microseconds, *_ in rows)
    assert not list(tmp_path.iterdir())
