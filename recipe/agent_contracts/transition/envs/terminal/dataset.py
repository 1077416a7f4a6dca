"""Rows and parquet files that a trainer reads: the public task, the hidden grader, and how to decode.

Every held-out task is written twice, for sampling at temperature 1 (three attempts) and for greedy decoding (one),
so that one evaluation reports both beside each other.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.transition.envs.terminal.generator import (
    STEP_BUDGET,
    TOKEN_BUDGET,
    Scenario,
    scenarios,
)
from recipe.agent_contracts.transition.envs.terminal.task import HELDOUT_SPLITS, SPLITS, messages, to_json

SIZES: dict[str, tuple[int, int]] = {"article": (48, 16), "smoke": (640, 200)}
"""Named data sets: number of train and of held-out tasks."""
ATTEMPTS: dict[str, int] = {"temperature_1": 3, "greedy": 1}
"""Held-out attempts a task, by decoding."""
AGENT_NAME = "contract_agent"
HELDOUT_CANARY = "df3b6623-da10-451e-89e3-0318d3d81a8b"
"""Every held-out row carries it outside the prompt, and the file in its metadata. Anywhere else it is a leak."""
CANARY_KEY = "agent_contracts.canary"
"""Where a parquet file's metadata carry it."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a task that depends on how large the model's turns are."""

    step_budget: int = STEP_BUDGET
    token_budget: int = TOKEN_BUDGET


class DatasetSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks to write; held-out tasks are split evenly over the two halves."""

    num_train: int
    num_heldout: int


def train_scenarios(count: int, seed: int) -> list[Scenario]:
    """The first `count` training scenarios of a seed."""
    return list(islice(scenarios("train", seed), count))


def heldout_scenarios(count: int, seed: int) -> list[Scenario]:
    """`count` held-out scenarios, the two halves alternating, so that any prefix is balanced."""
    streams = [scenarios(split, seed) for split in HELDOUT_SPLITS]
    return [next(streams[index % len(streams)]) for index in range(count)]


def row(scenario: Scenario, index: int, decoding: str, budgets: Budgets | None = None) -> dict[str, Any]:
    """One row in the trainer's schema.

    Args:
        scenario: The task.
        index: Position of the row in its file.
        decoding: `temperature_1` or `greedy`.
        budgets: Replace the generator's, which are made for the small cold-started policy.
    """
    task = scenario.task
    if budgets is not None:
        task = msgspec.structs.replace(task, **msgspec.structs.asdict(budgets))
    return {
        "data_source": f"terminal/{task.split}",
        "agent_name": AGENT_NAME,
        "prompt": messages(task),
        "ability": task.operation,
        "reward_model": {"style": "rule", "ground_truth": to_json(scenario.grader)},
        "extra_info": {
            "index": index,
            "task_id": task.task_id,
            "family": task.family,
            "template": task.template,
            "split": task.split,
            "seed": task.seed,
            "task": to_json(task),
            "decoding": decoding,
        },
    }


def find_row(split: str, index: int, seed: int) -> dict[str, Any]:
    """Row of the task number `index` of a split.

    Raises:
        ValueError: naming the splits that exist.
    """
    if split not in SPLITS:
        raise ValueError(f"terminal has no split {split!r}; its splits are {', '.join(SPLITS)}")
    return row(next(islice(scenarios(split, seed), index, None)), index, "temperature_1")


def train_rows(count: int, seed: int, budgets: Budgets | None = None) -> list[dict[str, Any]]:
    """Rows of the training file. How many siblings a group has is the experiment's decision, so no row says it."""
    chosen = train_scenarios(count, seed)
    return [row(scenario, index, "temperature_1", budgets) for index, scenario in enumerate(chosen)]


def heldout_rows(count: int, seed: int, budgets: Budgets | None = None) -> list[dict[str, Any]]:
    """Rows of the held-out file: each task once for each decoding, with its own number of attempts."""
    plans = [(task, decoding) for task in heldout_scenarios(count, seed) for decoding in ATTEMPTS]
    rows = [
        {**row(scenario, index, decoding, budgets), "__rollout_n__": ATTEMPTS[decoding]}
        for index, (scenario, decoding) in enumerate(plans)
    ]
    for written in rows:
        written["extra_info"]["canary"] = HELDOUT_CANARY
    return rows


def write_dataset(folder: Path, size: DatasetSize, seed: int, budgets: Budgets | None = None) -> tuple[Path, Path]:
    """Write `train.parquet` and `heldout.parquet`. The same arguments give identical bytes.

    Returns:
        The two paths.

    Raises:
        ValueError: when a number of tasks is not positive.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if size.num_train < 1 or size.num_heldout < 1:
        raise ValueError(f"num_train and num_heldout must be positive, found {size}")
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.parquet", folder / "heldout.parquet"
    tables = train_rows(size.num_train, seed, budgets), heldout_rows(size.num_heldout, seed, budgets)
    for path, rows, metadata in zip(paths, tables, (None, {CANARY_KEY: HELDOUT_CANARY}), strict=True):
        pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), path)
    return paths
