"""`RecordReplayEnv`: snapshots for an environment whose state cannot be read out, by doing everything again.

For what only has reset and step: a live service, a simulator behind a socket. A snapshot is the list of actions with
what each gave; a restore resets, repeats them, and stops at the first answer that differs. It claims partial replay and
no forks, since two live instances of such a world are not isolated by us.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import AgentEnv, Capabilities, ToolSchema, Transition, check_restorable, seal
from recipe.agent_contracts.transition.state import Origin, Snapshot, SnapshotKind
from recipe.agent_contracts.transition.tree import Directory

_RECORD = "record.json"


class StepOnlyEnv(Protocol):
    """What is wrapped: the part of `AgentEnv` that needs no snapshots."""

    env_version: str

    def reset(self, task_id: str, seed: int) -> str: ...

    def step(self, action: Action) -> Transition: ...

    def state_hash(self) -> str: ...

    def export_state(self) -> bytes: ...

    def tools(self) -> list[ToolSchema]: ...


class RecordReplayEnv:
    """An `AgentEnv` around `inner`."""

    capabilities: Capabilities = Capabilities(snapshot_kind=SnapshotKind.RECORD_REPLAY, restore=True)

    def __init__(self, inner: StepOnlyEnv) -> None:
        self.env_version = inner.env_version
        self._inner = inner
        self._origin: Origin | None = None
        self._record: tuple[tuple[Action, Transition], ...] = ()

    def reset(self, task_id: str, seed: int) -> str:
        """Reset the world and start a new record."""
        observation = self._inner.reset(task_id, seed)
        self._origin, self._record = Origin(task_id, seed), ()
        return observation

    def step(self, action: Action) -> Transition:
        """Step the world and record what it gave."""
        transition = self._inner.step(action)
        self._record = (*self._record, (action, transition))
        return transition

    def state_hash(self) -> str:
        """As far as the world can be read out."""
        return self._inner.state_hash()

    def export_state(self) -> bytes:
        """As the world exports it."""
        return self._inner.export_state()

    def tools(self) -> list[ToolSchema]:
        """The world's."""
        return self._inner.tools()

    def snapshot(self, label: str) -> Snapshot:
        """The actions so far; the world itself is not in it."""
        if self._origin is None:
            raise ContractViolation("transition.reset", "reset before the first snapshot", "no task", self.env_version)
        tree = Directory.from_files({_RECORD: msgspec.json.encode(self._record)})
        snapshot = seal(self, label, self._origin, tree)
        self._origin = msgspec.structs.replace(self._origin, parent=snapshot.ref)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Reset and repeat.

        Raises:
            ContractViolation: ``transition.restore`` at the first answer that is not the recorded one.
        """
        check_restorable(self, snapshot)
        record = msgspec.json.decode(snapshot.tree.files[_RECORD].data, type=tuple[tuple[Action, Transition], ...])
        self.reset(snapshot.ref.task_id, snapshot.ref.seed)
        for turn, (action, recorded) in enumerate(record):
            found = self.step(action)
            if found != recorded:
                evidence = f"turn {turn} of task {snapshot.ref.task_id}: {action}"
                raise ContractViolation("transition.restore", recorded, found, evidence)
        self._origin = Origin(snapshot.ref.task_id, snapshot.ref.seed, snapshot.ref)

    def fork(self, snapshot: Snapshot, branch_id: str) -> AgentEnv:
        """Refused: not among the capabilities."""
        raise ContractViolation("transition.fork", "an environment that claims fork", self.capabilities)
