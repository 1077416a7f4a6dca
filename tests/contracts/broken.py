"""Environments that break one promise each, as real ones do."""

from __future__ import annotations

import random
import time
from typing import Any, ClassVar

import msgspec

from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.env import Transition
from recipe.agent_contracts.transition.state import Entropy, Snapshot
from recipe.agent_contracts.transition.tree import Directory, File
from tests.contracts.toy import Office, OfficeEnv


class LeakyFork(OfficeEnv):
    """A fork is the very same instance."""

    def fork(self, snapshot: Snapshot, branch_id: str) -> LeakyFork:
        self.restore(snapshot)
        return self


class UnseededRandom(OfficeEnv):
    """Its numbers come from the process, not from the seed."""

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        return msgspec.structs.replace(transition, observation=f"{transition.observation} {random.random()}")


class WallClock(OfficeEnv):
    """Its first file says what second it is."""

    def _initial(self, task_id: str, seed: int) -> tuple[str, Office]:
        message, office = super()._initial(task_id, seed)
        return message, Office(office.files.set("now", File(str(int(time.time())).encode())), office.entropy)


class SharedDefault(OfficeEnv):
    """Its mail lies in a class attribute, so instances read each other's."""

    mail: ClassVar[dict[str, Any]] = {}

    def reset(self, task_id: str, seed: int) -> str:
        self.mail.clear()
        return super().reset(task_id, seed)

    def step(self, action: Action) -> Transition:
        if action.name == "send" and action.kind == "tool":
            self.mail[f"mail {len(self.mail)}"] = "unread"
        return super().step(action)

    def _tree(self, world: Office) -> Directory:
        return world.files.set("unread", File(str(len(self.mail)).encode()))


class LossyRestore(OfficeEnv):
    """A restore starts the generator afresh."""

    def _load(self, tree: Directory, entropy: Entropy) -> Office:
        return Office(tree, msgspec.structs.replace(entropy, rng_state=random.Random(7).getstate()))


class MutatesOnInvalid(OfficeEnv):
    """Counts its refusals in the world."""

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if action.kind == "invalid":
            office: Office = self._episode().world
            refused = Office(office.files.set("refused", File(b"1")), office.entropy)
            self._running = msgspec.structs.replace(self._episode(), world=refused, tree=self._tree(refused))
        return transition
