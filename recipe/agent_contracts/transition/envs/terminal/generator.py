"""The task generator: a pure function of (split, seed), and endless streams without duplicates.

Train and held-out share no family and no wording. The two held-out halves share their families, so that what
differs between their results is the wording alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

import msgspec

from recipe.agent_contracts.canonical import sha256_json
from recipe.agent_contracts.transition.envs.terminal.families import (
    OPERATION_WEIGHTS,
    Family,
    families_of,
)
from recipe.agent_contracts.transition.envs.terminal.operations import Blueprint, build
from recipe.agent_contracts.transition.envs.terminal.task import Grader, Split, TerminalTask
from recipe.agent_contracts.transition.envs.terminal.tools import TOOL_NAMES
from recipe.agent_contracts.transition.envs.terminal.wordings import WORDINGS, template_id

STEP_BUDGET = 8
TOKEN_BUDGET = 320
SEEDS_PER_STREAM = 1_000_000
"""A stream of base seed s draws task seeds from s * SEEDS_PER_STREAM upwards."""


class Scenario(msgspec.Struct, frozen=True):
    """A task with its hidden part and what the scripted demonstrations need. Never leaves the generator's side."""

    task: TerminalTask
    grader: Grader
    blueprint: Blueprint


def make_scenario(split: Split, seed: int) -> Scenario:
    """The task that `seed` names in `split`. The same arguments give identical bytes in every process."""
    rng = Random(f"terminal/{split}/{seed}")
    while True:
        family = _draw_family(split, rng)
        blueprint = build(family, rng)
        if _is_sound(blueprint):
            return _word(split, seed, family, blueprint, rng)


def scenarios(split: Split, seed: int) -> Iterator[Scenario]:
    """An endless stream of scenarios; no two have the same objective and files."""
    seen: set[str] = set()
    for offset in range(SEEDS_PER_STREAM):
        scenario = make_scenario(split, seed * SEEDS_PER_STREAM + offset)
        if scenario.task.task_id not in seen:
            seen.add(scenario.task.task_id)
            yield scenario


def _draw_family(split: Split, rng: Random) -> Family:
    """An operation by its weight, then one of its families; held-out families are all equally frequent."""
    families = families_of(split)
    if split != "train":
        return rng.choice(families)
    operations = list(OPERATION_WEIGHTS)
    operation = rng.choices(operations, [OPERATION_WEIGHTS[name] for name in operations])[0]
    return rng.choice([family for family in families if family.operation == operation])


def _is_sound(plan: Blueprint) -> bool:
    """Whether the right result is not there already and every wrong one is wrong."""
    given_away = plan.expected in (plan.files[name] for name in plan.files)
    wrong = (plan.near_miss, plan.guess)
    return not given_away and plan.expected not in wrong and plan.files[plan.target] != plan.expected


def _word(split: Split, seed: int, family: Family, plan: Blueprint, rng: Random) -> Scenario:
    wordings = WORDINGS[split][family.operation]
    index = rng.randrange(len(wordings))
    objective = wordings[index].format(file=plan.target, source=plan.source, key=plan.key, value=plan.value)
    files = {name: plan.files[name] for name in sorted(plan.files)}
    task_id = _task_id(split, objective, files)
    task = TerminalTask(
        task_id=task_id,
        family=str(family),
        operation=family.operation,
        template=template_id(split, family.operation, index),
        split=split,
        seed=seed,
        objective=objective,
        files=files,
        allowed_tools=list(TOOL_NAMES),
        step_budget=STEP_BUDGET,
        token_budget=TOKEN_BUDGET,
    )
    untouched = {name: content for name, content in files.items() if name != plan.target}
    grader = Grader(
        task_id=task_id,
        expected={plan.target: plan.expected},
        untouched=untouched,
        invariants=sorted(untouched),
    )
    return Scenario(task, grader, plan)


def _task_id(split: Split, objective: str, files: Mapping[str, str]) -> str:
    """Named by content, so that two tasks with one id are one task."""
    digest = sha256_json({"objective": objective, "files": files}).removeprefix("sha256:")
    return f"{split}-{digest[:20]}"
