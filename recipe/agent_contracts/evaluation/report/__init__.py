"""`report.html`: what one run shows, or two runs side by side, in one file that needs no network.

The verdict comes first, on five axes. Every figure is computed from the run's records when the report is written, with
its interval and its denominator; what was not measured says so and says what measures it.
"""

from __future__ import annotations

from pathlib import Path

from recipe.agent_contracts.evaluation.report.assemble import page_of
from recipe.agent_contracts.evaluation.report.measured import Measured
from recipe.agent_contracts.evaluation.report.render import render
from recipe.agent_contracts.transition.snapshots import write_atomically

FILE_NAME = "report.html"


def measure(folders: list[Path]) -> list[Measured]:
    """Read one run, or two that are called A and B.

    Raises:
        ContractViolation: ``evaluation.run`` when a folder holds no run; `RecordCorrupt` when a record is damaged.
    """
    labels = [""] if len(folders) == 1 else ["A", "B"]
    return [Measured(folder, label) for folder, label in zip(folders, labels, strict=True)]


def write_report(runs: list[Measured], out: Path) -> None:
    """Write the report of one run, or of two against each other."""
    write_atomically(out, render(page_of(runs)).encode())
