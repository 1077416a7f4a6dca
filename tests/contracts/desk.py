"""An environment that implements the protocol without a base class, over a state that it mutates in place."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.conformance import ContractCase
from recipe.agent_contracts.transition.env import (
    Capabilities,
    ToolSchema,
    Transition,
    check_forkable,
    check_restorable,
    seal,
)
from recipe.agent_contracts.transition.state import Origin, Snapshot, SnapshotKind
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory


class DeskEnv:
    """Papers in trays; `file` puts one on the tray that the seed names."""

    env_version = "desk-v1"
    capabilities = Capabilities(snapshot_kind=SnapshotKind.CANONICAL_STATE, restore=True, fork=True, exact_replay=True)

    def __init__(self) -> None:
        self.trays: dict[str, Any] = {}
        self.origin = Origin("", 0)

    @classmethod
    def contract_cases(cls) -> list[ContractCase]:
        actions = [Action("tool", "file", {"paper": paper}) for paper in "abc"] + [Action("finish", "finish", {})]
        return [ContractCase(open=cls, task_id="desk", seed=seed, actions=actions) for seed in (0, 1)]

    def reset(self, task_id: str, seed: int) -> str:
        self.trays, self.origin = {"in": [], "out": [], "done": False}, Origin(task_id, seed)
        return "A desk."

    def step(self, action: Action) -> Transition:
        if action.kind == "tool" and not self.trays["done"]:
            self.trays[("in", "out")[self.origin.seed]].append((action.args or {})["paper"])
        self.trays["done"] |= action.kind == "finish"
        ended = Termination.AGENT_FINISH if self.trays["done"] else None
        return Transition(f"{len(self.trays['in'])} in, {len(self.trays['out'])} out", self.state_hash(), ended)

    def state_hash(self) -> str:
        return self._tree().blob_hash

    def export_state(self) -> bytes:
        return canonical_json(self.trays)

    def snapshot(self, label: str) -> Snapshot:
        snapshot = seal(self, label, self.origin, self._tree())
        self.origin = msgspec.structs.replace(self.origin, parent=snapshot.ref)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        check_restorable(self, snapshot)
        self.trays = msgspec.json.decode(snapshot.tree.files["trays"].data)
        self.origin = Origin(snapshot.ref.task_id, snapshot.ref.seed, snapshot.ref)

    def fork(self, snapshot: Snapshot, branch_id: str) -> DeskEnv:
        check_forkable(self)
        other = type(self)()
        other.restore(snapshot)
        return other

    def tools(self) -> list[ToolSchema]:
        return [ToolSchema("file", "File a paper.", {"type": "object"})]

    def _tree(self) -> Directory:
        return Directory.from_files({"trays": self.export_state()})


class ShallowFork(DeskEnv):
    """A fork of the present state copies the desk and not the trays."""

    def fork(self, snapshot: Snapshot, branch_id: str) -> DeskEnv:
        if snapshot.ref.state_hash != self.state_hash():
            return super().fork(snapshot, branch_id)
        other = type(self)()
        other.trays, other.origin = copy.copy(self.trays), self.origin
        return other


class Restless(DeskEnv):
    """Papers can still be filed after the end."""

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if transition.termination is not None and action.kind == "tool":
            self.trays["out"].append("late")
        return transition


class Idle(DeskEnv):
    """Does nothing, so that everything about it holds and nothing is shown."""

    def step(self, action: Action) -> Transition:
        return Transition("idle", self.state_hash())
