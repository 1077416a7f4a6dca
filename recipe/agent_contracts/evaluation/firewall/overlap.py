"""Exact overlap: of contents, of the labels that group tasks, of wordings, and of dates with the cut-off.

A label says what its author meant to keep apart; content says what is apart. Both are checked: two files may share no
template id and one sentence.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.config.dataset import is_on_its_side
from recipe.agent_contracts.evaluation.firewall.minhash import words
from recipe.agent_contracts.evaluation.firewall.rules import Check, none_allowed, not_applicable
from recipe.agent_contracts.evaluation.firewall.suite import SuiteTask

Part = Callable[[SuiteTask], str | None]
CONTENTS: dict[str, Part] = {
    "task_text": lambda task: " ".join(words(task.text)),
    "public_task": lambda task: task.public_hash,
    "initial_files": lambda task: sha256_json(task.files) if task.files else None,
    "grader": lambda task: task.grader_hash,
    "wording": lambda task: wording(task),
}
LABELS: dict[str, Part] = {
    "template": lambda task: task.template,
    "environment": lambda task: task.environment,
    "repository": lambda task: task.repository,
}
_SLOT = "_"


def wording(task: SuiteTask) -> str:
    """The text of a task with every run of its own values and numbers replaced by one slot.

    A word is a value when the initial files or the grader hold it. Two tasks of one wording differ in no more than
    what was filled in, whatever their template ids say.
    """
    values = set(words(f"{task.content.removeprefix(task.text)} {task.answers}"))
    slotted = [_SLOT if word in values or word.isdigit() else word for word in words(task.text)]
    return " ".join(
        word for index, word in enumerate(slotted) if word != _SLOT or slotted[index - 1 : index] != [_SLOT]
    )


def content_checks(train: Sequence[SuiteTask], heldout: Sequence[SuiteTask]) -> Iterator[Check]:
    """No held-out task has a content in common with a training task."""
    for name, part in CONTENTS.items():
        yield _shared(name, part, train, heldout, "tasks")


def label_checks(train: Sequence[SuiteTask], heldout: Sequence[SuiteTask]) -> Iterator[Check]:
    """No held-out task has a template, environment or repository that training has."""
    for name, part in LABELS.items():
        yield _shared(name, part, train, heldout, "labels")


def temporal_check(train: Sequence[SuiteTask], heldout: Sequence[SuiteTask], cutoff: datetime.date | None) -> Check:
    """Training tasks are dated before the cut-off, held-out tasks on or after it.

    Raises:
        ValueError: when a date is not ISO 8601.
    """
    name, bound = "temporal_cutoff", f"train before {cutoff}, held-out from then on" if cutoff else "as declared"
    if cutoff is None:
        return not_applicable(name, "no cut-off is declared", bound)
    if not any(task.date for task in (*train, *heldout)):
        return not_applicable(name, "no task has a date", bound)
    evidence = [
        f"{side} {task.task_id}: {task.date or 'no date'}"
        for side, tasks in (("train", train), ("held-out", heldout))
        for task in tasks
        if not is_on_its_side(task.date, cutoff, is_train=side == "train")
    ]
    total = len(train) + len(heldout)
    return none_allowed(name, f"{len(evidence)} of {total} tasks on the wrong side or undated", bound, evidence)


def _shared(name: str, part: Part, train: Sequence[SuiteTask], heldout: Sequence[SuiteTask], unit: str) -> Check:
    bound = "0 shared"
    trained, tested = _grouped(part, train), _grouped(part, heldout)
    if not trained or not tested:
        side = "training" if not trained else "held-out"
        return not_applicable(name, f"no {side} task names one", bound)
    shared = sorted(trained.keys() & tested.keys())
    evidence = [f"held-out {tested[key][0]} and train {trained[key][0]}: {key}" for key in shared]
    if unit == "labels":
        figure = f"{len(shared)} shared, of {len(trained)} in train and {len(tested)} held-out"
    else:
        figure = f"{sum(len(tested[key]) for key in shared)} of {len(heldout)} held-out tasks"
    return none_allowed(name, figure, bound, evidence)


def _grouped(part: Part, tasks: Sequence[SuiteTask]) -> dict[str, list[str]]:
    """Task ids by value; tasks without one are left out."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        value = part(task)
        if value is not None:
            grouped[value].append(task.task_id)
    return grouped
