"""How long `agent-contracts report` takes for a run of 100,000 turn records, and how much memory.

The run is made of copies of a small recorded one under new names (`benchmarks/why.py`): same lines, same blobs, a
record of every update. The whole command is timed as a process, once with gates.json there and once when it must judge
the gates.

Usage: .venv/bin/python benchmarks/report.py RUN [--records 100000]     (RUN: a finished run with gates.json)
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from why import multiply

COMMAND = [sys.executable, "-c", "from recipe.agent_contracts.cli import app; app()", "report"]
TARGET_SECONDS, TARGET_GIGABYTES = 60.0, 2.0


def main() -> None:
    """Measure, print, and fail when a target is missed with gates.json there."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("run", type=Path)
    options.add_argument("--records", type=int, default=100_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        run = Path(folder)
        updates = multiply(given.run, run, given.records)
        for name in ("experiment.yaml", "scaffold.json", "scaffold_attested.jsonl", "ledger.sqlite"):
            shutil.copy(given.run / name, run)
        for path in given.run.glob("metrics*.jsonl"):
            shutil.copy(path, run)
        shutil.copyfile(given.run / "gates.json", run / "gates.json")
        seconds, gigabytes = timed([*COMMAND, str(run)])
        size = (run / "report.html").stat().st_size / 1e6
        print(f"{given.records} records, {len(updates)} updates, report of {size:.1f} MB")
        print(f"gates.json there: {seconds:.1f} s, {gigabytes:.2f} GB")
        (run / "gates.json").unlink()
        print("gates judged too: {:.1f} s, {:.2f} GB".format(*timed([*COMMAND, str(run)])))
    if seconds > TARGET_SECONDS or gigabytes > TARGET_GIGABYTES:
        raise SystemExit(f"missed: targets {TARGET_SECONDS:.0f} s and {TARGET_GIGABYTES:.0f} GB")


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds and peak resident gigabytes of a process that must succeed."""
    began = time.perf_counter()
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return time.perf_counter() - began, usage.ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
