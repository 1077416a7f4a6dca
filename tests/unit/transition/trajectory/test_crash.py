"""kill -9 of a writer at random points: every record whose append returned is there, at most one is torn."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipe.agent_contracts.transition.trajectory import read_run

WRITER = Path(__file__).with_name("crashing_writer.py")
REPOSITORY = Path(__file__).parents[4]


def kill_a_writer(run: Path, compression: str, seed: int) -> int:
    """Start a writer, kill it after a random time, and return how many appends had returned."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(WRITER), str(run), compression, str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        acknowledged = writer.stdout.read(8)
        time.sleep(random.Random(seed).uniform(0, 0.05))
        writer.kill()
        acknowledged += writer.stdout.read()
    return int.from_bytes(acknowledged[-8:], "little")


def check_kills(folder: Path, seeds: range) -> int:
    """Kill a writer for each seed, check what it left, and return how many parts were torn."""
    num_torn = 0
    for seed in seeds:
        run, torn = folder / str(seed), []
        num_appended = kill_a_writer(run, ("none", "zstd")[seed % 2], seed)
        found = [record.turn for record in read_run(run, torn.append)]
        assert found == list(range(len(found)))
        # The last append may have finished without having told so.
        assert num_appended <= len(found) <= num_appended + 1
        assert len(torn) <= 1
        num_torn += len(torn)
    return num_torn


def test_a_killed_writer_loses_at_most_the_unfinished_record(tmp_path):
    check_kills(tmp_path, range(20))


@pytest.mark.nightly
def test_a_writer_killed_200_times_loses_at_most_the_unfinished_record(tmp_path):
    num_torn = check_kills(tmp_path, range(1000, 1200))
    assert num_torn > 0, "no kill met a write: the test shows nothing"
