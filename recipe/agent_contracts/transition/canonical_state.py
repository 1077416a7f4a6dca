"""`CanonicalStateEnv`: when the world is one immutable value, reset, snapshot, restore and fork come with it.

An author writes four pure functions: the initial world of a task, a step, the world as a tree, and the world from a
tree. Restore and fork take a reference and copy nothing. The base owns which task runs and the line of descent of
snapshots; it assumes that the world is frozen all the way down, which the conformance suite tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import (
    Capabilities,
    ToolSchema,
    Transition,
    check_forkable,
    check_restorable,
    seal,
)
from recipe.agent_contracts.transition.state import NO_ENTROPY, Entropy, Origin, Snapshot, SnapshotKind
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory

WorldT = TypeVar("WorldT")


class _Running(msgspec.Struct, frozen=True):
    """The episode of an instance."""

    origin: Origin
    world: Any
    tree: Directory
    """Of the world, so that its hashes are made once."""


class CanonicalStateEnv(ABC, Generic[WorldT]):
    """See the module's docstring. A subclass holds nothing that a step changes: all of that is in its world.

    Args:
        tasks: What `reset` can be given, by task id.
    """

    env_version: str
    capabilities: Capabilities = Capabilities(
        snapshot_kind=SnapshotKind.CANONICAL_STATE, restore=True, fork=True, exact_replay=True
    )

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        self._tasks = tasks
        self._running: _Running | None = None

    @abstractmethod
    def _initial(self, task_id: str, seed: int) -> tuple[str, WorldT]:
        """The first observation and the world of a task."""

    @abstractmethod
    def _apply(self, world: WorldT, action: Action) -> tuple[WorldT, str, Termination | None]:
        """One step: the world after (the same object when nothing changed), the observation, and the end if it is one.

        Raises:
            ContractViolation: when the world's episode has ended.
        """

    @abstractmethod
    def _tree(self, world: WorldT) -> Directory:
        """Everything of the world but its entropy."""

    @abstractmethod
    def _load(self, tree: Directory, entropy: Entropy) -> WorldT:
        """The world of a tree that `_tree` gave and an entropy that `_entropy` gave."""

    @abstractmethod
    def _export(self, world: WorldT) -> bytes:
        """What the verifier reads."""

    @abstractmethod
    def tools(self) -> list[ToolSchema]:
        """The tools that the running task allows, in the order the model sees them."""

    def _entropy(self, world: WorldT) -> Entropy:
        """The generator, clock and queue of the world; none by default."""
        return NO_ENTROPY

    def reset(self, task_id: str, seed: int) -> str:
        """Start `task_id` afresh and give the user message.

        Raises:
            ContractViolation: for an unknown task.
        """
        self._check_known(task_id)
        message, world = self._initial(task_id, seed)
        self._running = _Running(Origin(task_id, seed), world, self._tree(world))
        return message

    def step(self, action: Action) -> Transition:
        """Apply one action.

        Raises:
            ContractViolation: before the first reset, and when the episode has ended already.
        """
        running = self._episode()
        world, observation, ended = self._apply(running.world, action)
        tree = running.tree if world is running.world else self._tree(world)
        self._running = _Running(running.origin, world, tree)
        return Transition(observation, tree.blob_hash, ended)

    def state_hash(self) -> str:
        """Hash of the world's tree; an edit costs the directories on its path."""
        return self._episode().tree.blob_hash

    def export_state(self) -> bytes:
        """The world as the verifier reads it."""
        return self._export(self._episode().world)

    def snapshot(self, label: str) -> Snapshot:
        """Seal the present world: a reference to it, and its name."""
        running = self._episode()
        snapshot = seal(self, label, running.origin, running.tree, self._entropy(running.world))
        origin = msgspec.structs.replace(running.origin, parent=snapshot.ref)
        self._running = _Running(origin, running.world, running.tree)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Take the snapshot's world by reference."""
        check_restorable(self, snapshot)
        ref = snapshot.ref
        self._check_known(ref.task_id)
        world = self._load(snapshot.tree, snapshot.entropy)
        self._running = _Running(Origin(ref.task_id, ref.seed, ref), world, snapshot.tree)

    def fork(self, snapshot: Snapshot, branch_id: str) -> Self:
        """Another instance over the same tasks that holds the snapshot's world by reference."""
        check_forkable(self)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.restore(snapshot)
        return other

    def _episode(self) -> _Running:
        if self._running is None:
            raise ContractViolation("transition.reset", "reset before the first step", "no task", type(self).__name__)
        return self._running

    def _check_known(self, task_id: str) -> None:
        if task_id not in self._tasks:
            raise ContractViolation("transition.reset", f"one of {len(self._tasks)} known tasks", task_id)
