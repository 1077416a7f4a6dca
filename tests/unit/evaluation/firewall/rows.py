"""Rows for the firewall's tests: small suites that are apart in everything, and where to plant a leak."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.agent_contracts.evaluation.firewall.audit import Firewall, audit
from recipe.agent_contracts.evaluation.firewall.rules import Check
from recipe.agent_contracts.evaluation.firewall.suite import read_suite
from recipe.agent_contracts.transition.envs.terminal.dataset import HELDOUT_CANARY

Row = dict[str, Any]
TRAIN_TEXTS = (
    "Rotate the nightly backup archives and keep only the seven newest ones on disk.",
    "Rename every branch whose owner has left and list what was renamed.",
)
HELDOUT_TEXTS = (
    "Sum the invoice totals by customer and write one line for each of them.",
    "Find which service leaks sockets; close them without a restart.",
)


def row(name: str, split: str, text: str, /, **changes: Any) -> Row:
    """A row; `files`, `expected`, `repository`, `public` go into the task, the rest into extra_info."""
    files = changes.pop("files", {f"{name}.txt": f"content of {name}"})
    expected = changes.pop("expected", f"result of {name}")
    public = {"task_id": name, "split": split, "seed": 1, "objective": text, "files": files}
    if "repository" in changes:
        public["repository"] = changes.pop("repository")
    info = {"task_id": name, "family": f"f-{split}", "template": f"t-{split}", "seed": 1, "date": None}
    return {
        "prompt": [{"role": "system", "content": "Work."}, {"role": "user", "content": text}],
        "agent_name": "contract_agent",
        "data_source": f"terminal/{split}",
        "reward_model": {"ground_truth": json.dumps({"task_id": name, "expected": {f"{name}.txt": expected}})},
        "extra_info": {**info, "task": json.dumps(public), "note": "", **changes},
    }


def train_rows() -> list[Row]:
    return [row(f"train-{index}", "train", text) for index, text in enumerate(TRAIN_TEXTS)]


def heldout_rows() -> list[Row]:
    return [row(f"heldout-{index}", "heldout", text) for index, text in enumerate(HELDOUT_TEXTS)]


def write(path: Path, rows: Sequence[Row], canary: str | None = None) -> Path:
    metadata = None if canary is None else {"agent_contracts.canary": canary}
    pq.write_table(pa.Table.from_pylist(list(rows)).replace_schema_metadata(metadata), path)
    return path


def audited(
    folder: Path, train: Sequence[Row] | None = None, heldout: Sequence[Row] | None = None, **options: Any
) -> Firewall:
    """The audit of two files written into a folder."""
    paths = (
        write(folder / "train.parquet", train_rows() if train is None else train),
        write(folder / "heldout.parquet", heldout_rows() if heldout is None else heldout, HELDOUT_CANARY),
    )
    return audit(read_suite(paths[0]), read_suite(paths[1]), **options)


def check_of(found: Firewall, name: str) -> Check:
    (check,) = [check for check in found.checks if check.name == name]
    return check


def failed(found: Firewall) -> set[str]:
    return {check.name for check in found.checks if check.status == "failed"}
