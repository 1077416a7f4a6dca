"""A small whole run of the terminal environment, for tests of the report: evaluated, trained, evaluated again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from recipe.agent_contracts.policy.registry import Part, Registry
from recipe.agent_contracts.policy.scaffold_lock import attest, lock_of, write_lock
from recipe.agent_contracts.transition.envs.terminal.demonstrations import Quality
from recipe.agent_contracts.transition.snapshots import BlobStore
from recipe.agent_contracts.transition.trajectory import TurnRecord
from recipe.agent_contracts.update.ledger import Ledger, Measured
from recipe.agent_contracts.update.record import UpdateRow
from tests.policies import manifest, scaffold
from tests.unit.commands.conftest import played, write
from tests.unit.update.leasing import lease
from tests.unit.update.test_record import record

CONFIG = Path(__file__).parents[1] / "recipe/agent_contracts/config/agent_contracts.yaml"
WRONG = next(quality for quality in Quality if not quality.succeeds)
NUM_TASKS = 4
METRICS = {
    "actor/kl_loss": 0.01,
    "actor/grad_norm": 1.5,
    "actor/entropy": 2.0,
    "actor/proximal_gap_max": 0.0,
    "update/zero_variance_groups": 0.0,
    "consistency/abs_p95": 1e-7,
    "consistency/abs_max": 1e-6,
    "consistency/k3": 0.0,
    "ratio/effective_sample_size": 1.0,
    "gradient_mass/length/64-127": 0.25,
    "gradient_mass/length/128-255": 0.75,
    "timing_s/step": 2.0,
    **{
        f"ratio/{kind}/{tail}": 1.0
        for kind in ("token", "whole_turn", "whole_episode", "turn_geometric_mean", "episode_geometric_mean")
        for tail in ("p50", "p95", "p99", "max")
    },
}


def make_run(run: Path, *, successes: tuple[int, int] = (2, 6), **contract: Any) -> Path:
    """A run folder: held-out evaluations at steps 0 and 1 of 4 tasks x 2 attempts, and one update of one group.

    Args:
        successes: Attempts that succeed in each evaluation, of 8; the tasks are filled one after the other.
        contract: `section__key=value` replaces an entry of the shipped contract.
    """
    blobs = BlobStore(run / "blobs")
    right, wrong = (played(blobs, "g_0", quality) for quality in (Quality.CORRECT, WRONG))
    trained = [right, named(wrong, "g_1")]
    evaluated = [
        named(
            right if index < count else wrong,
            f"v{step}{index}_0",
            partition="val",
            trainer_step=step,
            task_id=f"task {index // 2}",
            data_source="terminal/heldout_known_style",
        )
        for step, count in zip((0, 1), successes, strict=True)
        for index in range(2 * NUM_TASKS)
    ]
    write(run, *evaluated, *trained)
    _update(run, trained)
    write_experiment(run, **contract)
    write_metrics(run, {0: {}, 1: METRICS})
    publish(run)
    write_lock(run, lock_of("sha256:b", {"train": [scaffold()]}))
    attest(run, "trainer", {"train": [scaffold()]})
    return run


def write_experiment(run: Path, **contract: Any) -> None:
    """experiment.yaml as shipped, but for some entries of its contract."""
    experiment = {"contract": yaml.safe_load(CONFIG.read_text())["contract"], "trainer": {"total_training_steps": 1}}
    for name, value in contract.items():
        section, _, key = name.partition("__")
        experiment["contract"][section][key] = value
    (run / "experiment.yaml").write_text(yaml.safe_dump(experiment))


def write_metrics(run: Path, steps: dict[int, dict[str, float]]) -> None:
    """metrics.jsonl as verl's file logger writes it."""
    lines = [json.dumps({"step": step, "data": values}) for step, values in steps.items()]
    (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


class Rank(NamedTuple):
    """What one inference rank acknowledges."""

    rank: int
    received: str = "sha256:w"
    num_compared: int = 3
    not_compared: str | None = None


def publish(run: Path, *, ranks: Sequence[Rank] = (Rank(0),), num_ranks: int = 1, **changes: Any) -> None:
    """Serve a version (1), with its manifest."""
    policy = manifest(**{"policy_version": 1, **changes})
    version = policy.policy_version
    policy.write(run / "manifests")
    registry = Registry(run, clock=itertools.count(1_700_000_000 + 100 * version).__next__)
    publication = registry.build(version, 0, num_ranks)
    for rank in ranks:
        registry.acknowledge(version, 0, Part.FULL, *rank)
    registry.stage(publication, checksum=policy.weight_checksum, manifest_hash=policy.manifest_hash)
    registry.activate(publication)


def named(turns: list[TurnRecord], trajectory_id: str, **changes: Any) -> list[TurnRecord]:
    """The same episode under another name."""
    changes |= {"trajectory_id": trajectory_id, "group_id": trajectory_id.split("_")[0]}
    return [msgspec.structs.replace(turn, episode=msgspec.structs.replace(turn.episode, **changes)) for turn in turns]


def _update(run: Path, trained: list[list[TurnRecord]]) -> None:
    rows = [
        UpdateRow(
            trajectory_id=turns[0].episode.trajectory_id,
            group_id="g",
            episode_return=turns[-1].reward_components["task_success"],
            advantages=[advantage],
            num_action_tokens=sum(len(turn.action_token_ids) for turn in turns),
            weight=0.5,
        )
        for turns, advantage in zip(trained, (1.0, -1.0), strict=True)
    ]
    record(1, rows).write(run)
    ledger = Ledger(run)
    ledger.lease([lease("g", policy_version=0, size=2), lease("lost", family="drop")], 1)
    ledger.complete("g", 1, Measured(sum(row.num_action_tokens for row in rows), 0.5))
    ledger.refuse("lost", "discarded", "deadline", 1, None)
    ledger.admit(["g"], 1)
    ledger.apply(["g"], 1, 1)
    ledger.commit(["g"], 1)
    ledger.close()
