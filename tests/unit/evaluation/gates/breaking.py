"""How a test says what breaks a gate: one changed fact of a run, the gate that must see it, and what it must name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recipe.agent_contracts.evaluation.gates.base import Status
from tests.gated import Parts

Change = Callable[[Parts], None]


@dataclass(frozen=True, kw_only=True)
class Break:
    """One change and all that must come of it."""

    gate: str
    change: Change
    says: str
    """Part of the gate's evidence: the counterexample's name."""
    status: Status
    also: tuple[str, ...]
    """Every other gate that must fail; why is said beside each."""

    @property
    def name(self) -> str:
        return f"{self.gate}-{self.change.__name__}"


BREAKS: list[Break] = []


def breaks(
    gate: str, says: str, *, also: tuple[str, ...] = (), status: Status = Status.FAILED
) -> Callable[[Change], Change]:
    """Register a function that changes one fact of a run."""

    def register(change: Change) -> Change:
        BREAKS.append(Break(gate=gate, change=change, says=says, status=status, also=also))
        return change

    return register
