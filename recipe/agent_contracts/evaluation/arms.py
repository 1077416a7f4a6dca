"""An arm of the controls: a finished run folder, read by what it preregistered and never by its name.

An arm counts when its last evaluation was logged, when each of its updates credited exactly the verified returns that
it says (permuted as the declared seed permutes, or each episode its own), and when it differs from the normal arm in
nothing but what makes it that control.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from recipe.agent_contracts.config.experiment import EVALUATED_ONLY
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates.base import Run
from recipe.agent_contracts.evaluation.logged import HELD_OUT
from recipe.agent_contracts.evaluation.sft_only import REPORT, SftReport
from recipe.agent_contracts.policy.scaffold_lock import read_lock
from recipe.agent_contracts.transition.trajectory import episodes
from recipe.agent_contracts.update.record import UpdateRecord
from recipe.agent_contracts.update.shuffling import permutation
from recipe.agent_contracts.verification.objective import Objective

MAY_DIFFER = frozenset(
    {
        "contract.run",
        "contract.evaluation.control",
        "contract.evaluation.shuffle_seed",
        "trainer.default_local_dir",
        "trainer.experiment_name",
        "trainer.save_freq",
        "trainer.total_training_steps",
        "trainer.val_before_train",
        "trainer.val_only",
        "trainer.v1.sampler.sampler_kwargs.run_folder",
    }
)
"""Keys in which every arm may differ from the normal one: what it is, how long it trains, where it lies."""
ENGINE_SEED = "actor_rollout_ref.rollout.seed"
_SERVED_NAME = "actor_rollout_ref.rollout.prometheus.served_model_name"  # verl derives it from the model's path
MAY_DIFFER_TOO = {"frozen": {ENGINE_SEED}, "sft_only": {"actor_rollout_ref.model.path", _SERVED_NAME}}


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run."""

    name: str
    control: str
    shuffle_seed: int | None
    """Null: it shuffles nothing."""
    engine_seed: int
    num_steps: int
    """Optimizer steps before the evaluation that counts."""
    base_revision: str
    """Checksum of the files that its policy descends from."""
    sft: SftReport | None
    """Null: not the SFT-only control."""
    scores: dict[str, dict[str, list[float]]]
    """Decoding -> task -> verified success of each attempt."""
    unverified: int
    """Attempts without a verdict, in no score."""

    def task_means(self, decoding: str) -> dict[str, float]:
        """Success of each task, over its attempts."""
        return {task: sum(values) / len(values) for task, values in self.scores[decoding].items()}


def read_arms(folder: Path) -> tuple[dict[str, Arm], list[str]]:
    """Every run directly below a folder.

    Returns:
        Complete arms by folder name, and one line for each run that is not complete.

    Raises:
        ContractViolation: ``evaluation.controls`` for a run whose updates are not what it declares, or that differs
            from the normal arm in more than its control.
    """
    runs = [Run(path.parent) for path in sorted(folder.glob("*/experiment.yaml"))]
    unfinished = [why for run in runs if (why := _unfinished(run))]
    finished = [run for run in runs if not _unfinished(run)]
    normal = next((run for run in finished if _evaluation(run)["control"] == "none"), None)
    if normal is None:
        raise ContractViolation("evaluation.controls", "a finished run with control=none", unfinished, str(folder))
    for run in finished:
        _require_same_experiment(normal, run)
    return {run.folder.name: read_arm(run) for run in finished}, unfinished


def read_arm(run: Run) -> Arm:
    """A complete run as an arm.

    Raises:
        ContractViolation: ``evaluation.controls`` when an update credited other returns than it declares.
    """
    last, evaluation = _last_step(run), _evaluation(run)
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    verified: dict[str, dict[str, float]] = {}
    unverified = 0
    for turns in episodes(run.folder):
        identity, reward = turns[-1].episode, turns[-1].reward_components
        if identity.partition == "train" and reward is not None:
            verified[identity.trajectory_id] = reward
        elif identity.partition == "val" and identity.trainer_step == last:
            if reward is None:
                unverified += 1
            else:
                scores[identity.decoding][identity.task_id].append(reward["task_success"])
    objective = msgspec.convert(run.contract["verification"]["objective"], Objective)
    for update in run.updates:
        multipliers = {term: constraint.multiplier for term, constraint in update.constraints.items()}
        returns = {name: objective.return_of(vector, multipliers) for name, vector in verified.items()}
        _require_declared_returns(update, evaluation["control"], evaluation["shuffle_seed"], returns, run.folder)
    report = _sft_report(run) if evaluation["control"] == "sft_only" else None
    return Arm(
        name=run.folder.name,
        control=evaluation["control"],
        shuffle_seed=evaluation["shuffle_seed"],
        engine_seed=_flat(run.experiment)[ENGINE_SEED],
        num_steps=last,
        base_revision=read_lock(run.folder).base_revision if report is None else report.base_revision,
        sft=report,
        scores={decoding: dict(tasks) for decoding, tasks in scores.items()},
        unverified=unverified,
    )


def _evaluation(run: Run) -> dict[str, Any]:
    section: dict[str, Any] = run.contract["evaluation"]
    return section


def _last_step(run: Run) -> int:
    return (
        0 if _evaluation(run)["control"] in EVALUATED_ONLY else int(run.experiment["trainer"]["total_training_steps"])
    )


def _unfinished(run: Run) -> str | None:
    """Why a run is not complete. verl logs a step's evaluation once all of it is there."""
    evaluated = [entry.step for entry in run.metrics if any(name.startswith(HELD_OUT) for name in entry.values)]
    if _last_step(run) in evaluated:
        return None
    return f"{run.folder.name}: not finished; no evaluation at step {_last_step(run)}"


def _sft_report(run: Run) -> SftReport:
    path = Path(run.experiment["actor_rollout_ref"]["model"]["path"]).parent / REPORT
    if not path.exists():
        raise ContractViolation("evaluation.controls", "what the SFT-only policy was made of", "none", str(path))
    return msgspec.json.decode(path.read_bytes(), type=SftReport)


def _require_same_experiment(normal: Run, run: Run) -> None:
    """Arms are compared because they differ in one thing."""
    control = _evaluation(run)["control"]
    allowed = MAY_DIFFER | MAY_DIFFER_TOO.get(control, set())
    ours, theirs = _flat(normal.experiment), _flat(run.experiment)
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key) and not any(key == name or key.startswith(f"{name}.") for name in allowed):
            expected = f"{key}={ours.get(key)} as in {normal.folder.name}"
            raise ContractViolation("evaluation.controls", expected, theirs.get(key), str(run.folder))
    if read_lock(normal.folder).decodings != read_lock(run.folder).decodings:
        expected = f"the scaffold of {normal.folder.name}"
        raise ContractViolation("evaluation.controls", expected, "another one", str(run.folder / "scaffold.json"))


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a nested configuration."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _require_declared_returns(
    update: UpdateRecord, control: str, seed: int | None, returns: dict[str, float], run: Path
) -> None:
    """Each row was credited with the verified return of the episode that the declared control gives it."""
    where = f"{run}, step {update.step}"
    if (update.control, update.shuffle_seed) != (control, seed):
        expected = f"control {control} with shuffle seed {seed}"
        raise ContractViolation("evaluation.controls", expected, (update.control, update.shuffle_seed), where)
    groups: dict[str, list[str]] = defaultdict(list)
    for row in update.rows:
        groups[row.group_id].append(row.trajectory_id)
    source: dict[str, str | None] = {row.trajectory_id: None for row in update.rows}
    if control == "shuffled_rewards":
        assert seed is not None, "refused by the configuration otherwise"
        for group, members in groups.items():
            names = sorted(members)
            order = permutation(len(names), seed, update.step, group)
            source |= {name: names[index] for name, index in zip(names, order, strict=True)}
    for row in update.rows:
        expected_return = returns.get(source[row.trajectory_id] or row.trajectory_id)
        if row.return_of != source[row.trajectory_id] or row.episode_return != expected_return:
            expected = (
                f"{row.trajectory_id} credited with {expected_return} of {source[row.trajectory_id] or 'its own'}"
            )
            found = f"{row.episode_return} of {row.return_of or 'its own'}"
            raise ContractViolation("evaluation.controls", expected, found, where)
