"""A small environment with all that makes one hard to restore: files, a generator, a mock clock and a queue.

`draw` writes a random number, `send` queues a message, `wait` lets the clock tick and delivers the oldest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from recipe.agent_contracts.canonical import canonical_json
from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.transition.actions import Action
from recipe.agent_contracts.transition.canonical_state import CanonicalStateEnv
from recipe.agent_contracts.transition.conformance import ContractCase
from recipe.agent_contracts.transition.env import ToolSchema
from recipe.agent_contracts.transition.state import Entropy
from recipe.agent_contracts.transition.termination import Termination
from recipe.agent_contracts.transition.tree import Directory, File

NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
ACTIONS = tuple(
    Action("finish" if name == "finish" else "tool", name, {})
    for name in ("draw", "send", "send", "wait", "draw", "wait", "finish")
)


class Office(msgspec.Struct, frozen=True):
    """The world."""

    files: Directory
    entropy: Entropy


class OfficeEnv(CanonicalStateEnv[Office]):
    env_version = "office-v1"

    def __init__(self) -> None:
        super().__init__({"office": None})

    @classmethod
    def contract_cases(cls) -> Sequence[ContractCase]:
        return [ContractCase(open=cls, task_id="office", seed=7, actions=ACTIONS)]

    def tools(self) -> list[ToolSchema]:
        return [ToolSchema(name, name, NOTHING) for name in ("draw", "send", "wait", "finish")]

    def _initial(self, task_id: str, seed: int) -> tuple[str, Office]:
        entropy = Entropy(rng_state=Random(seed).getstate(), clock_seconds=0.0)
        return "An office.", Office(Directory.from_files({"in/first": b"hello"}), entropy)

    def _apply(self, world: Office, action: Action) -> tuple[Office, str, Termination | None]:
        if "done" in world.files.files:
            raise ContractViolation("transition.step", "a running episode", "a finished one")
        entropy = world.entropy
        match action.kind, action.name:
            case "tool", "draw":
                generator = entropy.generator()
                drawn = str(generator.randrange(10**6))
                entropy = msgspec.structs.replace(entropy, rng_state=generator.getstate())
                return Office(world.files.set("drawn", File(drawn.encode())), entropy), drawn, None
            case "tool", "send":
                entropy = msgspec.structs.replace(entropy, queue=(*entropy.queue, f"mail {len(entropy.queue)}"))
                return Office(world.files, entropy), "queued", None
            case "tool", "wait":
                assert entropy.clock_seconds is not None
                mail, rest = entropy.queue[0], entropy.queue[1:]
                entropy = msgspec.structs.replace(entropy, queue=rest, clock_seconds=entropy.clock_seconds + 60.0)
                files = world.files.set(f"in/{entropy.clock_seconds:.0f}", File(mail.encode()))
                return Office(files, entropy), mail, None
            case "finish", _:
                return Office(world.files.set("done", File(b"")), entropy), "", Termination.AGENT_FINISH
        return world, f"error: {action.invalid_reason}", None

    def _tree(self, world: Office) -> Directory:
        return world.files

    def _entropy(self, world: Office) -> Entropy:
        return world.entropy

    def _load(self, tree: Directory, entropy: Entropy) -> Office:
        return Office(tree, entropy)

    def _export(self, world: Office) -> bytes:
        return canonical_json({path: file.data.decode() for path, file in world.files.walk()})
