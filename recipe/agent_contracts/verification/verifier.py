"""The verifier's interface and its result, a reward vector that is kept whole to the end.

A verifier sees the exported final state and the hidden part of the task; it never sees the agent, its text or
its claims. It runs in a process of its own (`verification.process`).
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

EXTRA = "extra."
"""Prefix, in the flat vector, of what a task adds to it."""


class Score(msgspec.Struct, frozen=True):
    """Reward vector of one episode. Which entry is reward and which is a cost is the experiment's decision."""

    task_success: float
    """1.0 when the final state is what the task asked for and completion was declared, else 0.0."""
    policy_violation: float = 0.0
    """Number of declared rules the agent broke. A constraint cost, never summed into task_success."""
    collateral_damage: float = 0.0
    """Number of files changed, added or removed that the task did not ask for."""
    tool_calls: float = 0.0
    """Tool calls that the environment executed."""
    tamper_detected: float = 0.0
    """Non-zero when the measurement itself was attacked: the episode is quarantined."""
    extra: dict[str, float] = {}
    """What this task measures besides."""

    def vector(self) -> dict[str, float]:
        """The flat form that records, metrics and the trainer carry; an extra entry `x` is named `extra.x`."""
        entries: dict[str, Any] = msgspec.to_builtins(self)
        extra = entries.pop("extra")
        return {**entries, **{EXTRA + name: value for name, value in extra.items()}}


TERMS = tuple(name for name in Score.__struct_fields__ if name != "extra")
"""Entries that every vector has."""


class Verifier(Protocol):
    """Scores final states of one environment."""

    version: str
    """Changes whenever the same state and grader could give another score."""

    def score(self, grader: dict[str, Any], final_state: bytes) -> Score:
        """Score a final state.

        Args:
            grader: The hidden part of the task (expected files, invariants). Never shown to the agent.
            final_state: Canonical JSON as given by `AgentEnv.export_state`.

        Raises:
            ValueError: when the state or the grader cannot be read. The caller reports a verifier failure.
        """
        ...
