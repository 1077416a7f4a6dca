"""What verl logged, step by step, over all attempts of a run.

verl's file logger starts a new file with every attempt (`metrics.jsonl`, then `metrics.1.jsonl`, ...). An attempt that
resumes from a checkpoint does the steps after it again: what an earlier attempt logged from there on did not last. It
may begin with an evaluation of the checkpoint, logged under the checkpoint's own step, whose training metrics last.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec

from recipe.agent_contracts.errors import RecordCorrupt

HELD_OUT = "val-core/"
"""Prefix of verl's held-out metrics."""
TRAINED = "training/global_step"
"""verl logs it with every training step, and not with an evaluation alone."""


class StepMetrics(msgspec.Struct, frozen=True):
    """One step's metrics by name, as verl named them. Step 0 is the evaluation before training."""

    step: int
    values: dict[str, float] = msgspec.field(name="data")


def read_metrics(run: Path) -> list[StepMetrics]:
    """Every step that lasted, ascending.

    Raises:
        RecordCorrupt: when a line that is not the last of its file cannot be read.
    """
    lasting: dict[int, StepMetrics] = {}
    for path in sorted(run.glob("metrics*.jsonl"), key=_attempt):
        attempt = _read(path)
        first = min((entry.step for entry in attempt), default=math.inf)
        trained = min((entry.step for entry in attempt if TRAINED in entry.values), default=math.inf)
        lasting = {step: entry for step, entry in lasting.items() if step <= first and step < trained}
        for entry in attempt:
            before = lasting[entry.step].values if entry.step in lasting else {}
            lasting[entry.step] = StepMetrics(entry.step, {**before, **entry.values})
    return [lasting[step] for step in sorted(lasting)]


def _attempt(path: Path) -> int:
    number = path.name.removeprefix("metrics").removesuffix(".jsonl").removeprefix(".")
    return int(number or 0)


def _read(path: Path) -> list[StepMetrics]:
    entries = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            # verl writes NaN and Infinity, which strict JSON does not know.
            entries.append(msgspec.convert(json.loads(line), StepMetrics))
        except ValueError as error:
            if number == len(lines):  # the writer was killed: this line was never whole
                break
            raise RecordCorrupt("evaluation.metrics", "a step's metrics", str(error), f"{path}:{number}") from error
    return entries
