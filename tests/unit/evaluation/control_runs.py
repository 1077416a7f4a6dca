"""Run folders of the controls, small: held-out attempts, updates, lock and metrics as a real run leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from recipe.agent_contracts.config.experiment import EVALUATED_ONLY
from recipe.agent_contracts.evaluation.controls import Controls, Gains
from recipe.agent_contracts.evaluation.sft_only import REPORT, SftReport
from recipe.agent_contracts.evaluation.statistics import Estimate
from recipe.agent_contracts.policy.scaffold_lock import ScaffoldLock, write_lock
from recipe.agent_contracts.transition.trajectory import TrajectoryWriter
from recipe.agent_contracts.update.credit import Episode, TurnSpan, credit
from recipe.agent_contracts.update.record import UpdateRecord, UpdateRow
from recipe.agent_contracts.update.shuffling import shuffled
from tests.records import identity, turn_record

BASE = "sha256:cold"
STEPS = 2
RETURNS = [1.0, 0.0, 0.0, 1.0]


def successes(num_tasks: int, per_task: Sequence[float]) -> dict[str, list[float]]:
    """The same attempts for each task."""
    return {f"task{number}": list(per_task) for number in range(num_tasks)}


def make_arm(
    folder: Path,
    sampled: dict[str, list[float]],
    *,
    control: str = "none",
    shuffle_seed: int | None = None,
    engine_seed: int = 42,
    greedy: float = 0.0,
    base: str = BASE,
    kl_beta: float = 0.02,
    finished: bool = True,
) -> Path:
    """Write one arm's run folder."""
    last = 0 if control in EVALUATED_ONLY else STEPS
    model = folder.parent / "policies" / folder.name / "model"
    policy = model if control == "sft_only" else Path("cold")
    experiment: dict[str, Any] = {
        "contract": {
            "run": {"folder": str(folder)},
            "evaluation": {"control": control, "shuffle_seed": shuffle_seed, "gates_not_applicable": {}},
            "update": {"kl_beta": kl_beta},
            "verification": {
                "objective": {"reward": ["task_success"], "gates": [], "costs": {}, "process_reward_arm": None}
            },
        },
        "actor_rollout_ref": {
            "model": {"path": str(policy)},
            "rollout": {"seed": engine_seed, "prometheus": {"served_model_name": str(policy)}},
        },
        "trainer": {"total_training_steps": STEPS, "val_only": control in EVALUATED_ONLY},
    }
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    write_lock(folder, ScaffoldLock(base if control != "sft_only" else "sha256:sft", {}))
    if control == "sft_only":
        report = SftReport(
            base_revision=base,
            matched_tokens=90,
            trained_tokens=100,
            sequence_tokens=300,
            num_steps=1,
            learning_rate=3e-4,
            seed=1,
        )
        model.mkdir(parents=True)
        (model.parent / REPORT).write_bytes(msgspec.json.encode(report))
    writer = TrajectoryWriter(folder / "trajectories", "a")
    for decoding, tasks in (("temperature_1", sampled), ("greedy", {task: [greedy] for task in sampled})):
        for task, attempts in tasks.items():
            for number, success in enumerate(attempts):
                name = f"{decoding}{task}_{number}"
                writer.append([_attempt(name, "val", last, success, task_id=task, decoding=decoding)])
    for step in range(1, last + 1):
        names = [f"s{step}_{number}" for number in range(len(RETURNS))]
        for name, value in zip(names, RETURNS, strict=True):
            writer.append([_attempt(name, "train", step, value)])
        update(names, step, control, shuffle_seed).write(folder)
    writer.close()
    line = {"step": last if finished else last - 1, "data": {"val-core/terminal/acc/mean@3": 0.5}}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def _attempt(name: str, partition: str, step: int, success: float, **changes: Any) -> Any:
    who = identity(name, partition=partition, trainer_step=step, **changes)
    return turn_record(episode=who, reward_components={"task_success": success})


def update(
    names: list[str],
    step: int,
    control: str = "none",
    seed: int | None = None,
    num_tokens: Sequence[int] = (2, 2, 2, 2),
) -> UpdateRecord:
    """The record of one group with `RETURNS`, made as the trainer makes it."""
    group = names[0].split("_")[0]
    episodes = [
        Episode(name, group, value, [TurnSpan("s", size)])
        for name, value, size in zip(names, RETURNS, num_tokens, strict=True)
    ]
    return_of: list[str | None] = [None] * len(episodes)
    if control == "shuffled_rewards":
        assert seed is not None
        episodes, return_of[:] = shuffled(episodes, seed, step)
    rows = [
        UpdateRow(
            trajectory_id=episode.trajectory_id,
            group_id=group,
            episode_return=episode.episode_return,
            return_of=origin,
            advantages=[float(values[0])],
            num_action_tokens=episode.num_tokens,
            weight=1 / len(episodes),
        )
        for episode, origin, values in zip(episodes, return_of, credit("rloo", "none", episodes), strict=True)
    ]
    return UpdateRecord(
        step=step,
        input_policy_version=step - 1,
        output_policy_version=step,
        estimator="rloo",
        group_reward_scale="none",
        reduction="episode_sum",
        objective="reinforce_with_kl",
        kl_beta=0.02,
        control=control,
        shuffle_seed=seed,
        rows=rows,
    )


def make_all(folder: Path, num_tasks: int = 100) -> Path:
    """Every arm: the normal one gains a third a task, nothing else moves but shuffle seed 3, which loses."""
    third = successes(num_tasks, [1.0, 0.0, 0.0])
    make_arm(folder / "frozen", third, control="frozen")
    make_arm(folder / "frozen_again", third, control="frozen", engine_seed=43)
    make_arm(folder / "normal", successes(num_tasks, [1.0, 1.0, 0.0]), greedy=1.0)
    for seed in (1, 2, 3):
        scores = successes(num_tasks, [0.0, 0.0, 0.0]) if seed == 3 else third
        make_arm(folder / f"shuffled_{seed}", scores, control="shuffled_rewards", shuffle_seed=seed)
    make_arm(folder / "sft_only", third, control="sft_only")
    return folder


def estimate(low: float, high: float, num_tasks: int = 200) -> Estimate:
    return Estimate(mean=(low + high) / 2, low=low, high=high, num_tasks=num_tasks)


def controls(
    normal: tuple[float, float] = (0.1, 0.2),
    nulls: Sequence[tuple[float, float]] = ((-0.03, 0.02),) * 3,
    num_tasks: int = 200,
    attempts: int = 3,
) -> Controls:
    """An audit of controls with these intervals: the normal arm's, and one a shuffle seed."""
    shuffled = {str(seed): estimate(*null, num_tasks) for seed, null in enumerate(nulls)}
    gains = Gains(normal=estimate(-0.05, 0.02), shuffled=shuffled, frozen_vs_frozen=None, sft_only=None)
    return Controls(
        baseline="frozen",
        num_tasks=num_tasks,
        attempts_per_task=attempts,
        normal=estimate(*normal),
        shuffled=shuffled,
        frozen_vs_frozen=None,
        sft_only=None,
        false_alarms=None,
        greedy=gains,
        arms=[],
        unfinished=[],
        verdict=[],
    )
