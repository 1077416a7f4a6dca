"""The labelled states of the domain `terminal`, the same in every process.

For each task: the right state, a few of its named corruptions in turn, and the ends of two played episodes, one
scripted like the cold start's demonstrations and one of random actions that are right in part. What is constructed
carries the constructor's label and the second program's; what is played carries the second program's alone. Task and
grader come from the shipped generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.envs.terminal.demonstrations import demonstrate
from recipe.agent_contracts.transition.envs.terminal.families import FAMILIES, families_of
from recipe.agent_contracts.transition.envs.terminal.generator import Scenario, scenarios
from recipe.agent_contracts.transition.envs.terminal.task import HELDOUT_SPLITS, SPLITS, Split
from recipe.agent_contracts.transition.envs.terminal.tools import TOOLS, parameters_by_name
from recipe.agent_contracts.transition.envs.terminal.world import World, apply
from recipe.agent_contracts.transition.parsers.hermes import HermesParser
from recipe.agent_contracts.verification import terminal_second_program as second_program
from recipe.agent_contracts.verification.labels import Fault, Label, LabelledState, LabelSource
from recipe.agent_contracts.verification.terminal_corruptions import CORRUPTIONS, Outcome, right_outcome

SEED = 411
TASKS_PER_FAMILY = 100
CORRUPTIONS_PER_TASK = 3
MAX_RANDOM_ACTIONS = 3
_PARAMETERS = parameters_by_name(list(TOOLS))


def labelled_states() -> list[LabelledState]:
    """At least 100 right and 300 wrong states of every family; no state of a task is there twice."""
    return [
        state
        for tasks in tasks_by_family().values()
        for index, task in enumerate(tasks)
        for state in _states(task, index)
    ]


def tasks_by_family() -> dict[str, list[Scenario]]:
    """`TASKS_PER_FAMILY` tasks of every family; of a held-out family as many of either half."""
    found: dict[str, list[Scenario]] = {str(family): [] for family in FAMILIES}
    for split in SPLITS:
        number = TASKS_PER_FAMILY // len(HELDOUT_SPLITS) if split in HELDOUT_SPLITS else TASKS_PER_FAMILY
        for family, tasks in _first_of_each(split, number).items():
            found[family] += tasks
    return found


def _first_of_each(split: Split, number: int) -> dict[str, list[Scenario]]:
    found: dict[str, list[Scenario]] = {str(family): [] for family in families_of(split)}
    stream = scenarios(split, SEED)
    while any(len(tasks) < number for tasks in found.values()):
        scenario = next(stream)
        if len(found[scenario.task.family]) < number:
            found[scenario.task.family].append(scenario)
    return found


def _states(scenario: Scenario, index: int) -> Iterator[LabelledState]:
    """The states of one task. `index` counts within the family, so that the corruptions take turns."""
    task = scenario.task
    wanted = second_program.answer(task.objective, task.files)
    hidden = msgspec.to_builtins(scenario.grader)
    seen: set[bytes] = set()
    for name, state, labels in _reached(scenario, index):
        if state in seen:
            continue
        seen.add(state)
        faults = second_program.faults(wanted, task.files, state)
        yield LabelledState(
            name=name,
            family=task.family,
            task_id=task.task_id,
            grader=hidden,
            final_state=state,
            labels=[*labels, Label(LabelSource.SECOND_PROGRAM, second_program.VERSION, faults)],
            is_whitespace_only=second_program.is_whitespace_only(wanted, task.files, state),
        )


def _reached(scenario: Scenario, index: int) -> Iterator[tuple[str, bytes, list[Label]]]:
    """(name, exported state, the constructor's label where it made the state)."""
    yield _constructed("right", [], right_outcome(scenario))
    possible = [(way, outcome) for way in CORRUPTIONS if (outcome := way.apply(scenario)) is not None]
    for turn in range(index * CORRUPTIONS_PER_TASK, (index + 1) * CORRUPTIONS_PER_TASK):
        way, outcome = possible[turn % len(possible)]
        yield _constructed(way.name, way.faults, outcome)
    rng = Random(f"labelled/{scenario.task.task_id}")
    yield "played as scripted", _played(scenario, _scripted(scenario, rng)), []
    yield "played at random", _played(scenario, _at_random(scenario, rng)), []


def _constructed(name: str, faults: list[Fault], outcome: Outcome) -> tuple[str, bytes, list[Label]]:
    state = canonical_json({"files": outcome.files, "declared": outcome.declared, "tool_calls": 3})
    return name, state, [Label(LabelSource.CONSTRUCTED, name, faults)]


def _scripted(scenario: Scenario, rng: Random) -> list[Action]:
    parser = HermesParser()
    return [parser.parse(turn, _PARAMETERS) for turn in demonstrate(scenario, rng).turns]


def _at_random(scenario: Scenario, rng: Random) -> list[Action]:
    """Writes and replacements of any file by any text that a policy could think of; many of them aim right."""
    plan = scenario.blueprint
    paths = [*[plan.target] * 8, *plan.files, "scratch.txt"]
    texts = [*[plan.expected] * 6, plan.near_miss, plan.guess, plan.misdirected, plan.files[plan.target]]
    actions: list[Action] = []
    for _ in range(rng.randint(1, MAX_RANDOM_ACTIONS)):
        path = rng.choice(paths)
        if rng.random() < 0.7:
            name, text = "write_file", {"content": rng.choice(texts)}
        else:
            old = _slice(plan.files.get(path, plan.expected), rng)
            name, text = "replace_in_file", {"old": old, "new": _slice(plan.expected, rng)}
        actions.append(Action(kind="tool", name=name, args={"path": path, **text}))
    endings = [Action(kind="finish"), Action(kind="abstain"), None]
    (last,) = rng.choices(endings, [8, 1, 1])
    return actions if last is None else [*actions, last]


def _slice(text: str, rng: Random) -> str:
    start = rng.randrange(len(text))
    return text[start : rng.randint(start + 1, len(text))]


def _played(scenario: Scenario, actions: Sequence[Action]) -> bytes:
    world = World.of(scenario.task.files)
    for action in actions:
        world, _ = apply(world, action, frozenset(scenario.task.allowed_tools))
    return world.export()
