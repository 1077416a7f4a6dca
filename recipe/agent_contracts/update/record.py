"""The record of one policy update: which episodes it used, and with which coefficient each token entered the loss.

One file a step, written when the advantages are known and before the optimizer moves. With the turn records it is
enough to say why a token was pushed up or down: `coefficient` is the factor of its grad log pi in the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import zstandard

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.verification.constraints import Constraint, Cost, multipliers_after

UPDATE_SCHEMA = "update-v3"
EARLIER = ("update-v1", "update-v2")
"""Still read: under v1 no control run was made, under both nothing was constrained, and that is what the fields that
they lack say."""


class UpdateRow(msgspec.Struct, frozen=True, kw_only=True):
    """One episode's part in an update."""

    trajectory_id: str
    group_id: str
    episode_return: float
    """The scalar that the estimator was given for the whole episode: the declared objective of its verified reward
    vector, or of `return_of`'s."""
    return_of: str | None = None
    """Trajectory whose verified return this is, in an update that shuffled them. Null: the episode's own."""
    advantages: list[float]
    """One an action token, in the order in which the episode's turns sampled them; a single entry stands for an episode
    whose tokens all have the same."""
    num_action_tokens: int
    weight: float
    """What the reduction multiplies each of this episode's tokens with; 1 / B for `episode_sum` over B episodes."""

    def coefficient(self, token: int) -> float:
        """Advantage times weight of the episode's action token `token` (from 0): what scales its grad log pi.

        Raises:
            IndexError: when the episode has no such action token.
        """
        if not 0 <= token < self.num_action_tokens:
            raise IndexError(f"{self.trajectory_id} has {self.num_action_tokens} action tokens, not token {token}")
        return self.weight * (self.advantages[0] if len(self.advantages) == 1 else self.advantages[token])


class UpdateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step's batch."""

    schema_version: str = UPDATE_SCHEMA
    step: int
    input_policy_version: int
    """Version of the weights that the update starts from."""
    output_policy_version: int
    """Version that the update makes."""
    estimator: str
    group_reward_scale: str
    reduction: str
    objective: str
    kl_beta: float
    control: str = "none"
    """`contract.evaluation.control`. With `shuffled_rewards` no row's return is evidence about its own episode."""
    shuffle_seed: int | None = None
    """Null: nothing was shuffled."""
    constraints: dict[str, Constraint] = {}
    """By entry of the reward vector: the multiplier that the returns were priced with, and the next one."""
    rows: list[UpdateRow]

    def write(self, run: Path) -> Path:
        """Write `updates/step-NNNNNN.json.zst` in a run folder. A step trained again after a crash replaces it."""
        path = update_path(run, self.step)
        write_atomically(
            path, zstandard.ZstdCompressor(level=3, write_checksum=True).compress(msgspec.json.encode(self))
        )
        return path


def update_path(run: Path, step: int) -> Path:
    """Where the record of a step lies."""
    return run / "updates" / f"step-{step:06d}.json.zst"


def read_update(run: Path, step: int) -> UpdateRecord:
    """The record of one step.

    Raises:
        ContractViolation: ``update.record`` when there is none, or it is not what this version writes.
    """
    path = update_path(run, step)
    if not path.exists():
        known = ", ".join(str(known) for known in recorded_steps(run)) or "none"
        raise ContractViolation("update.record", f"a record of step {step}", f"records of steps: {known}", str(path))
    try:
        content = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        record = msgspec.json.decode(content, type=UpdateRecord)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise ContractViolation("update.record", "a readable record", str(error), str(path)) from error
    if record.schema_version not in (UPDATE_SCHEMA, *EARLIER):
        raise ContractViolation("update.record", UPDATE_SCHEMA, record.schema_version, str(path))
    return record


def multipliers_at(run: Path, step: int, costs: Mapping[str, Cost]) -> dict[str, float]:
    """The Lagrange multipliers of a step: those that the record of the step before it left.

    Raises:
        ContractViolation: as `read_update`.
    """
    return multipliers_after(costs, read_update(run, step - 1).constraints if costs and step > 1 else None)


def recorded_steps(run: Path) -> list[int]:
    """Steps with a record, ascending."""
    names = (path.name for path in (run / "updates").glob("step-*.json.zst"))
    return sorted(int(name.removeprefix("step-").partition(".")[0]) for name in names)


def read_updates(run: Path) -> Iterator[UpdateRecord]:
    """Every update of a run, in order of steps."""
    return (read_update(run, step) for step in recorded_steps(run))
