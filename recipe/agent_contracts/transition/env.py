"""The environment's side of the transition contract: `AgentEnv`, its tools, and what a step returns.

An environment is a state machine, not a prompt wrapper: reset gives the same state hash every time, a step is
a pure function of (state, action), an invalid action consumes the step and changes nothing else, the state can be
exported for a verifier that the agent cannot reach, and it can be snapshotted, restored and forked as far as its
`Capabilities` say. `conformance.check_environment` tests all of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.state import NO_ENTROPY, Entropy, Origin, Snapshot, SnapshotKind, SnapshotRef
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory


class ToolSchema(msgspec.Struct, frozen=True):
    """One tool as the model sees it (OpenAI function schema, flattened)."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments object."""
    is_oracle: bool = False
    """It reveals ground truth. The model does not see this; the policy's manifest names such tools."""

    def as_openai(self) -> dict[str, Any]:
        """The `{"type": "function", "function": {...}}` form that chat templates expect."""
        shown = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": shown}


class Transition(msgspec.Struct, frozen=True):
    """Result of one step."""

    observation: str
    state_version: str
    """`AgentEnv.state_hash()` after the step."""
    termination: Termination | None = None
    """Set when the environment (not the harness) ended the episode."""
    tool_reward: float | None = None
    """What a tool said of its own call. Recorded with the turn, no part of the objective. None: it said nothing."""

    @property
    def done(self) -> bool:
        return self.termination is not None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment promises of its snapshots. An experiment that needs more is refused before it starts.

    Raises:
        ValueError: for a promise that cannot be kept: forks without restore, or exact replay of a mere record.
    """

    snapshot_kind: SnapshotKind = SnapshotKind.RECORD_REPLAY
    restore: bool = False
    fork: bool = False
    exact_replay: bool = False

    def __post_init__(self) -> None:
        if self.fork and not self.restore:
            raise ValueError("fork=True needs restore=True: a fork is a restore into another instance")
        if self.exact_replay and self.snapshot_kind is SnapshotKind.RECORD_REPLAY:
            raise ValueError("a record_replay snapshot restores by doing things again, so it has no exact_replay")


class AgentEnv(Protocol):
    """What the agent loop needs of an environment. One instance serves one episode at a time."""

    env_version: str
    """Changes whenever the same task and actions could give another observation or state."""
    capabilities: Capabilities

    def reset(self, task_id: str, seed: int) -> str:
        """Return to the task's initial state and give the first observation (the user message)."""
        ...

    def step(self, action: Action) -> Transition:
        """Apply one action. `Action.kind == "invalid"` must change no world state."""
        ...

    def state_hash(self) -> str:
        """`sha256:` of everything that a step can change; cheap, since every step gives it."""
        ...

    def export_state(self) -> bytes:
        """Canonical JSON of the whole world state, for the verifier."""
        ...

    def snapshot(self, label: str) -> Snapshot:
        """Seal the present state as a value that no later step can change.

        Raises:
            ContractViolation: before the first reset.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Become what the snapshot holds: state, entropy and task.

        Raises:
            ContractViolation: when the snapshot is of another environment version or kind, or of an unknown task, or
                when restoring is not among the capabilities.
        """
        ...

    def fork(self, snapshot: Snapshot, branch_id: str) -> AgentEnv:
        """Another instance that holds the snapshot. `branch_id` names it and changes nothing, randomness included.

        Raises:
            ContractViolation: as `restore`, or when forking is not among the capabilities.
        """
        ...

    def tools(self) -> list[ToolSchema]:
        """The tools this task allows, in the order the model sees them."""
        ...


def seal(env: AgentEnv, label: str, origin: Origin, tree: Directory, entropy: Entropy = NO_ENTROPY) -> Snapshot:
    """Name a state: how every `snapshot` ends.

    Args:
        origin: Of the running episode; the environment goes on with the new reference as its parent.
        tree: What the environment's kind of snapshot holds.
    """
    ref = SnapshotRef(
        kind=env.capabilities.snapshot_kind,
        exact_replay=env.capabilities.exact_replay,
        label=label,
        task_id=origin.task_id,
        seed=origin.seed,
        env_version=env.env_version,
        parent_snapshot_id=None if origin.parent is None else origin.parent.snapshot_id,
        state_hash=env.state_hash(),
        content_hash=tree.blob_hash,
        entropy_hash=entropy.entropy_hash,
    )
    return Snapshot(ref, tree, entropy)


def check_restorable(env: AgentEnv, snapshot: Snapshot) -> None:
    """What every `restore` checks first.

    Raises:
        ContractViolation: when restoring is not among the capabilities, or the snapshot not one of this environment's.
    """
    ref = snapshot.ref
    if not env.capabilities.restore:
        raise ContractViolation("transition.restore", "an environment that claims restore", env.capabilities)
    if (ref.env_version, ref.kind) != (env.env_version, env.capabilities.snapshot_kind):
        raise ContractViolation(
            "transition.restore",
            expected=f"a {env.capabilities.snapshot_kind} snapshot of {env.env_version}",
            found=f"a {ref.kind} snapshot of {ref.env_version}",
            evidence=f"snapshot {ref.label!r} of task {ref.task_id}",
        )


def check_forkable(env: AgentEnv) -> None:
    """What every `fork` checks first.

    Raises:
        ContractViolation: when forking is not among the capabilities.
    """
    if not env.capabilities.fork:
        raise ContractViolation("transition.fork", "an environment that claims fork", env.capabilities)
