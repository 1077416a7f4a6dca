"""Appends records until it is killed, and says after each append how many are written. Run by test_crash.py."""

import os
import random
import sys
from pathlib import Path

from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from tests.records import turn_record


def main(folder: str, compression: str, seed: str) -> None:
    rng = random.Random(seed)
    texts = [rng.randbytes(size).hex() for size in (10, 1_000, 100_000, 1_000_000)]
    writer = TrajectoryWriter(Path(folder) / "trajectories", "a", compression)
    number = 0
    while True:
        writer.append([turn_record(turn=number, action_text=rng.choice(texts))])
        number += 1
        os.write(1, number.to_bytes(8, "little"))


if __name__ == "__main__":
    main(*sys.argv[1:])
