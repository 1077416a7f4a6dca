"""How long `agent-contracts why` takes for a random token of a run of 100,000 turn records.

The run is made of copies of a small recorded one under new names: same lines, same blobs, a record of every update. The
whole command is timed as a process; its start-up alone (`agent-contracts --help`) stands beside it, and a whole reading
of the run in this process is what the search avoids.

Usage: .venv/bin/python benchmarks/why.py RUN [--records 100000] [--tokens 10]     (RUN: a finished run with updates/)
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from recipe.agent_contracts.transition.trajectory import TrajectoryWriter, TurnRecord, episodes, read_run
from recipe.agent_contracts.update.record import UpdateRecord, read_updates

COMMAND = [sys.executable, "-c", "from recipe.agent_contracts.cli import app; app()"]
NUM_PARTS = 4
TARGET_SECONDS = 1.0


def main() -> None:
    """Measure, print, and fail when the slowest answer misses the target."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("run", type=Path)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--tokens", type=int, default=10)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="why-") as folder:
        run = Path(folder)
        updates = multiply(given.run, run, given.records)
        size = sum(path.stat().st_size for path in (run / "trajectories").iterdir())
        print(f"{given.records} records in {NUM_PARTS} parts, {size / 1e6:.0f} MB, {len(updates)} updates")
        answers = [_timed([*COMMAND, "why", str(run), *words]) for words in _random_tokens(updates, given.tokens)]
        start_up = statistics.median(_timed([*COMMAND, "--help"]) for _ in range(3))
        began = time.perf_counter()
        num_records = sum(1 for _ in read_run(run))
        whole = time.perf_counter() - began
    assert num_records >= given.records
    print(f"why: median {statistics.median(answers):.2f} s, slowest {max(answers):.2f} s of {len(answers)} tokens")
    print(f"of which start-up {start_up:.2f} s; reading the whole run takes {whole:.2f} s")
    if max(answers) >= TARGET_SECONDS:
        raise SystemExit(f"missed: {max(answers):.2f} s, target {TARGET_SECONDS} s")


def multiply(source: Path, run: Path, num_records: int) -> list[UpdateRecord]:
    """Copy the episodes of `source` under new group names until there are enough records."""
    for name in ("blobs", "manifests"):
        shutil.copytree(source / name, run / name)
    shutil.copy(source / "policies.sqlite", run)
    played, before = list(episodes(source)), list(read_updates(source))
    writers = [TrajectoryWriter(run / "trajectories", str(part)) for part in range(NUM_PARTS)]
    updates: list[UpdateRecord] = []
    written = copy = 0
    while written < num_records:
        for number, turns in enumerate(played):
            writers[number % NUM_PARTS].append([_renamed(turn, copy) for turn in turns])
            written += len(turns)
        for record in before:
            rows = [
                msgspec.structs.replace(
                    row, trajectory_id=f"{copy}{row.trajectory_id}", group_id=f"{copy}{row.group_id}"
                )
                for row in record.rows
            ]
            updates.append(msgspec.structs.replace(record, step=len(updates) + 1, rows=rows))
            updates[-1].write(run)
        copy += 1
    return updates


def _renamed(turn: TurnRecord, copy: int) -> TurnRecord:
    who = turn.episode
    names = {"trajectory_id": f"{copy}{who.trajectory_id}", "group_id": f"{copy}{who.group_id}"}
    return msgspec.structs.replace(turn, episode=msgspec.structs.replace(who, **names))


def _random_tokens(updates: list[UpdateRecord], count: int) -> list[list[str]]:
    chance = random.Random(0)
    words = []
    for update in chance.choices(updates, k=count):
        row = chance.choice(update.rows)
        token = chance.randrange(row.num_action_tokens)
        words.append(["--step", str(update.step), "--trajectory", row.trajectory_id, "--token", str(token)])
    return words


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
