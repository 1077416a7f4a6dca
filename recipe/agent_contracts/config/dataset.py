"""Checks on the two data files: columns, separation of train and held-out, and what the experiment declares of them.

Guarantees to the run: every row names its task, family, template and seed; no task is there twice; what is held out
shares no family and no template with what is trained, and lies past the cut-off, if one is declared; each prompt fits.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from recipe.agent_contracts.config.experiment import Experiment
from recipe.agent_contracts.errors import ContractViolation

Row = dict[str, Any]

COLUMNS = ("prompt", "agent_name", "data_source", "reward_model", "extra_info")
EXTRA_INFO = ("task_id", "family", "template", "seed", "task")
ROLLOUT_N = "__rollout_n__"
"""verl's optional column: how often to play the row, instead of rollout.n or val_kwargs.n."""
REMEDY = "write the files again with data_preprocess/terminal_tasks.py"


def check_data(train_file: Path, val_file: Path, experiment: Experiment) -> None:
    """Check both parquet files against each other and against the experiment.

    Raises:
        ContractViolation: ``preflight.data``, naming the file, and the first task, family or template at fault.
    """
    train, heldout = read_rows(train_file), read_rows(val_file)
    for path, rows in ((train_file, train), (val_file, heldout)):
        _check_unique(path, rows)
        _check_budgets(path, rows, experiment)
    _check_sizes(train_file, train, val_file, heldout, experiment)
    _check_attempts(train_file, train, experiment.rollout.group_size, "contract.rollout.group_size")
    sampled = [row for row in heldout if row["extra_info"].get("decoding") != "greedy"]
    _check_attempts(val_file, sampled, experiment.evaluation.attempts_per_task, "contract.evaluation.attempts_per_task")
    _check_disjoint(train, val_file, heldout, "task_id", "a task is never in both files")
    if experiment.evaluation.template_disjoint:
        _check_disjoint(train, val_file, heldout, "template", "contract.evaluation.template_disjoint=true")
    if experiment.evaluation.environment_family_disjoint:
        _check_disjoint(train, val_file, heldout, "family", "contract.evaluation.environment_family_disjoint=true")
    cutoff = experiment.evaluation.temporal_cutoff
    if cutoff is not None:
        _check_dates(train_file, train, cutoff, is_train=True)
        _check_dates(val_file, heldout, cutoff, is_train=False)


def check_prompt_lengths(path: Path, max_prompt_length: int, count_tokens: Callable[[Row], int]) -> None:
    """Check that every prompt fits `data.max_prompt_length`.

    Args:
        path: A data file.
        max_prompt_length: In tokens.
        count_tokens: Tokens of one row's first context, as the model gets it (tools included).

    Raises:
        ContractViolation: ``preflight.prompt_length``, naming the first task that does not fit, and how long the
            longest is.
    """
    lengths = [(count_tokens(row), row["extra_info"]["task_id"]) for row in read_rows(path)]
    too_long = [(length, task_id) for length, task_id in lengths if length > max_prompt_length]
    if too_long:
        length, task_id = too_long[0]
        raise ContractViolation(
            "preflight.prompt_length",
            expected=f"prompts of at most data.max_prompt_length={max_prompt_length} tokens",
            found=f"{length} tokens in task {task_id}, the first of {len(too_long)} that do not fit",
            evidence=str(path),
            remedy=f"set data.max_prompt_length={max(lengths)[0]} or more",
        )


def is_on_its_side(date: str | None, cutoff: datetime.date, is_train: bool) -> bool:
    """Whether a row's date is before the cut-off for training, and not before it for evaluation. No date is on neither.

    Raises:
        ValueError: when the date is not ISO 8601.
    """
    return date is not None and (datetime.date.fromisoformat(date) < cutoff) == is_train


def read_rows(path: Path) -> list[Row]:
    """The rows of a parquet file with the columns that the trainer reads.

    Raises:
        ContractViolation: ``preflight.data``, when the file is missing, unreadable, empty or lacks a column.
    """
    import pyarrow.parquet as pq

    if not path.is_file():
        raise _violation(path, "a parquet file", "no such file")
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise _violation(path, "a parquet file", f"{type(error).__name__}: {error}") from error
    if not rows:
        raise _violation(path, "at least one row", "none")
    missing = [name for name in COLUMNS if name not in rows[0]]
    if missing:
        raise _violation(path, f"the columns {', '.join(COLUMNS)}", f"no {', no '.join(missing)}")
    for index, row in enumerate(rows):
        absent = [name for name in EXTRA_INFO if (row["extra_info"] or {}).get(name) is None]
        if absent:
            raise _violation(path, f"{', '.join(EXTRA_INFO)} in extra_info", f"no {absent[0]} in row {index}")
    return rows


def _check_unique(path: Path, rows: list[Row]) -> None:
    # A held-out task is there once for each decoding.
    plans = Counter((row["extra_info"]["task_id"], row["extra_info"].get("decoding")) for row in rows)
    (task_id, decoding), count = plans.most_common(1)[0]
    if count > 1:
        how = "" if decoding is None else f" with decoding={decoding}"
        raise _violation(path, "every task once", f"task_id {task_id} {count} times{how}")


def _check_budgets(path: Path, rows: list[Row], experiment: Experiment) -> None:
    """The budgets are part of the task and shown to the policy: the experiment may not declare others."""
    for row in rows:
        task = _task(path, row)
        for name in ("step_budget", "token_budget"):
            declared = getattr(experiment.environment, name)
            if task.get(name, declared) != declared:
                task_id = row["extra_info"]["task_id"]
                expected = f"contract.environment.{name}={declared} in every task"
                raise _violation(path, expected, f"{name}={task[name]} in task {task_id}")


def _task(path: Path, row: Row) -> Row:
    try:
        task = json.loads(row["extra_info"]["task"])
    except ValueError as error:
        raise _violation(path, "extra_info.task as JSON", f"{error} in task {row['extra_info']['task_id']}") from error
    return task if isinstance(task, dict) else {}


def _check_sizes(
    train_file: Path, train: list[Row], val_file: Path, heldout: list[Row], experiment: Experiment
) -> None:
    needed = experiment.update.tasks_per_batch
    if len(train) < needed:
        raise _violation(train_file, f"at least contract.update.tasks_per_batch={needed} rows", len(train))
    declared = experiment.environment
    for path, rows, name, number in (
        (train_file, train, "train_tasks", declared.train_tasks),
        (val_file, heldout, "heldout_tasks", declared.heldout_tasks),
    ):
        found = len(set(_named(rows, "task_id")))
        if number is not None and found != number:
            raise _violation(path, f"contract.environment.{name}={number} tasks", found)


def _check_attempts(path: Path, rows: list[Row], attempts: int, key: str) -> None:
    for row in rows:
        found = row.get(ROLLOUT_N)
        if found is not None and found != attempts:
            task_id = row["extra_info"]["task_id"]
            raise _violation(path, f"{key}={attempts} in column {ROLLOUT_N}", f"{found} for task {task_id}")


def _check_disjoint(train: list[Row], val_file: Path, heldout: list[Row], name: str, rule: str) -> None:
    trained = set(_named(train, name))
    shared = next((value for value in _named(heldout, name) if value in trained), None)
    if shared is not None:
        raise _violation(val_file, f"no {name} of the training file ({rule})", f"{name} {shared}")


def _check_dates(path: Path, rows: list[Row], cutoff: datetime.date, is_train: bool) -> None:
    expected = f"dates {'before' if is_train else 'from'} contract.evaluation.temporal_cutoff={cutoff}"
    for row in rows:
        date = row["extra_info"].get("date")
        try:
            is_right = is_on_its_side(date, cutoff, is_train)
        except ValueError:
            is_right = False
        if not is_right:
            raise _violation(path, expected, f"{date or 'no date'} in task {row['extra_info']['task_id']}")


def _named(rows: Iterable[Row], name: str) -> list[Any]:
    return [row["extra_info"][name] for row in rows]


def _violation(path: Path, expected: str, found: object) -> ContractViolation:
    return ContractViolation("preflight.data", expected, found, evidence=str(path), remedy=REMEDY)
