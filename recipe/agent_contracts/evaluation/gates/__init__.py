"""The nineteen go/no-go gates of a run: judged in one pass over its records, written to gates.json."""

from __future__ import annotations

from pathlib import Path

import msgspec

from recipe.agent_contracts.errors import ContractViolation
from recipe.agent_contracts.evaluation.gates.admission import (
    DropStrata,
    ExactlyOnce,
    StalenessBound,
    SyncAsyncEquivalence,
)
from recipe.agent_contracts.evaluation.gates.base import Finding, Gate, Run, Status
from recipe.agent_contracts.evaluation.gates.control import ShuffledRewardNull, VerifierErrorRates
from recipe.agent_contracts.evaluation.gates.policy import (
    GeneratorChecksums,
    LogprobConsistency,
    ManifestIdentical,
    PolicyRoles,
    SingleBehaviorVersion,
)
from recipe.agent_contracts.evaluation.gates.transition import (
    BranchIsolation,
    LogprobsComplete,
    ReplayExact,
    ResetHash,
    SampleIndex,
    TerminationDistinct,
)
from recipe.agent_contracts.evaluation.gates.update import GradientSign, ReductionIdentity
from recipe.agent_contracts.transition.snapshots import write_atomically
from recipe.agent_contracts.transition.trajectory import episodes

GATES: tuple[type[Gate], ...] = (
    ResetHash,
    ReplayExact,
    BranchIsolation,
    ManifestIdentical,
    LogprobsComplete,
    PolicyRoles,
    SingleBehaviorVersion,
    GeneratorChecksums,
    LogprobConsistency,
    StalenessBound,
    ExactlyOnce,
    SyncAsyncEquivalence,
    DropStrata,
    SampleIndex,
    TerminationDistinct,
    ReductionIdentity,
    VerifierErrorRates,
    GradientSign,
    ShuffledRewardNull,
)


NEEDED = {
    "environment": ("domain",),
    "rollout": ("max_version_lag",),
    "consistency": ("max_abs_p95", "max_abs_max", "max_k3"),
    "credit": ("reduction",),
    "update": (),
    "evaluation": ("gates_not_applicable",),
}
"""What the gates read of the preregistered contract."""


def judge_run(folder: Path) -> list[Finding]:
    """Every gate's finding, G01 to G19, and `gates.json` in the run folder.

    Raises:
        ContractViolation: ``evaluation.run`` when the folder holds no run; ``evaluation.gates`` when the experiment
            excuses a gate that does not exist, or gives no reason.
    """
    run = Run(folder)
    run.require(NEEDED)
    excused = _excused(run)
    judged = [gate(run) for gate in GATES if gate.id not in excused]
    for turns in episodes(folder):
        for gate in judged:
            gate.see(turns)
    found = {gate.id: gate.finding() for gate in judged}
    for gate_type in GATES:
        if gate_type.id in excused:
            reason = excused[gate_type.id]
            found[gate_type.id] = Finding(
                gate=gate_type.id,
                name=gate_type.name,
                status=Status.NOT_APPLICABLE,
                figure="",
                tolerance="",
                evidence=f"experiment.yaml: {reason}",
            )
    findings = [found[gate.id] for gate in GATES]
    write_atomically(folder / "gates.json", msgspec.json.format(msgspec.json.encode(findings)))
    return findings


def _excused(run: Run) -> dict[str, str]:
    """Gates that the preregistered experiment does without, with their reasons."""
    excused: dict[str, str] = run.contract["evaluation"]["gates_not_applicable"]
    known = {gate.id for gate in GATES}
    wrong = [gate for gate, reason in excused.items() if gate not in known or not str(reason or "").strip()]
    if wrong:
        raise ContractViolation("evaluation.gates", "a gate G01 to G19 with a reason", wrong, str(run.folder))
    return excused


def go(findings: list[Finding]) -> bool:
    """Whether every gate passed or does not apply. Not measured is not passed."""
    return all(finding.status in (Status.PASSED, Status.NOT_APPLICABLE) for finding in findings)
